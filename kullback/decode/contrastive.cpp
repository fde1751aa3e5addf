#include "kullback/decode/contrastive.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kullback/base/error.h"
#include "kullback/lm/sampling.h"

namespace kullback {

std::vector<double> contrastive_scores(std::span<const double> expert, std::span<const double> amateur,
                                       const ContrastiveOptions& options) {
  if (!(options.alpha > 0 && options.alpha <= 1))
    fail("alpha is {}, which must be above 0 and at most 1", options.alpha);
  if (!(options.amateur_temperature > 0))
    fail("amateur-temperature is {}, which must be above 0", options.amateur_temperature);
  if (expert.size() != amateur.size())
    fail("the expert has {} tokens and the amateur {}", expert.size(), amateur.size());
  std::vector<double> softened(amateur.begin(), amateur.end());
  scale_by_temperature(softened, options.amateur_temperature);
  const std::vector<double> e = log_softmax(expert), a = log_softmax(softened);
  const double least = *std::max_element(e.begin(), e.end()) + std::log(options.alpha);
  std::vector<double> scores(e.size(), -std::numeric_limits<double>::infinity());
  for (size_t v = 0; v < e.size(); ++v) {
    if (!(e[v] >= least)) continue;
    const double floored = std::max(a[v], options.amateur_floor);
    scores[v] = options.beta ? (1 + *options.beta) * e[v] - *options.beta * floored : e[v] - floored;
  }
  return scores;
}

}  // namespace kullback
