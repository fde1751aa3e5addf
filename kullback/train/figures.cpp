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
    estimates[name] = bootstrap_of(
        of_rows.size(), seed, name,
        [&](std::span<const size_t> drawn) {
          Mean resampled;
          for (const size_t k : drawn) resampled.sum += of_rows[k].sum, resampled.count += of_rows[k].count;
          return resampled.value();
        },
        resamples);
  }
  return estimates;
}

Interval bootstrap_of(size_t rows, uint64_t seed, const std::string& name,
                      const std::function<double(std::span<const size_t>)>& statistic, int64_t resamples) {
  std::vector<size_t> drawn(rows);
  for (size_t k = 0; k < rows; ++k) drawn[k] = k;
  const double value = statistic(drawn);
  RandomStream stream(seed, "bootstrap " + name);
  std::vector<double> values;
  for (int64_t i = 0; i < resamples; ++i) {
    for (size_t& k : drawn) k = stream.below(rows);
    values.push_back(statistic(drawn));
  }
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
  };
  return {value, quantile(0.025), quantile(0.975)};
}

}  // namespace kullback
