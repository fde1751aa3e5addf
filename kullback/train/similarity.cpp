#include "kullback/train/similarity.h"

#include <algorithm>
#include <vector>

#include "kullback/base/error.h"

namespace kullback {

double rouge_l(std::span<const int32_t> first, std::span<const int32_t> second) {
  if (first.empty() || second.empty()) return 0;
  std::vector<int64_t> longest(second.size() + 1,
                               0);  // common subsequences of what was read and each prefix of `second`
  for (const int32_t token : first) {
    int64_t diagonal = 0;
    for (size_t j = 1; j <= second.size(); ++j) {
      const int64_t above = longest[j];
      longest[j] = token == second[j - 1] ? diagonal + 1 : std::max(above, longest[j - 1]);
      diagonal = above;
    }
  }
  return 2 * static_cast<double>(longest.back()) / static_cast<double>(first.size() + second.size());
}

size_t most_similar(std::span<const double> similarity) {
  if (similarity.empty()) fail("there is no hypothesis to choose from");
  return static_cast<size_t>(std::ranges::max_element(similarity) - similarity.begin());
}

}  // namespace kullback
