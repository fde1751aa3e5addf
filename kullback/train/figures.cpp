#include "kullback/train/figures.h"

#include <algorithm>
#include <cmath>

#include "kullback/base/random.h"

namespace kullback {

void add(Figures& total, const Figures& part) {
  for (const auto& [name, mean] : part) {
    total[name].sum += mean.sum;
    total[name].count += mean.count;
  }
}

std::map<std::string, Interval> bootstrap(const std::vector<Figures>& rows, uint64_t seed, int64_t resamples) {
  Figures total;
  for (const Figures& row : rows) add(total, row);
  std::map<std::string, Interval> estimates;
  for (const auto& [name, mean] : total) {
    std::vector<Mean> of_rows;
    for (const Figures& row : rows) {
      const auto found = row.find(name);
      if (found != row.end()) of_rows.push_back(found->second);
    }
    RandomStream stream(seed, "bootstrap " + name);
    std::vector<double> values;
    for (int64_t i = 0; i < resamples; ++i) {
      Mean resampled;
      for (size_t k = 0; k < of_rows.size(); ++k) {
        const Mean& drawn = of_rows[stream.below(of_rows.size())];
        resampled.sum += drawn.sum, resampled.count += drawn.count;
      }
      values.push_back(resampled.value());
    }
    std::sort(values.begin(), values.end());
    const auto quantile = [&](double q) {
      return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
    };
    estimates[name] = {mean.value(), quantile(0.025), quantile(0.975)};
  }
  return estimates;
}

}  // namespace kullback
