#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kullback/report/number.h"

namespace kullback {

/// A mean that is still being taken: sums over the parts of a step, or over the rows of a data set, add up.
struct Mean {
  double sum = 0, count = 0;
  double value() const { return count > 0 ? sum / count : 0; }
};

/// Named means.
using Figures = std::map<std::string, Mean>;
void add(Figures& total, const Figures& part);

/// Means of many rows (prompts), with percentile bootstrap intervals over the rows (Efron 1979): 1,000 resamples, drawn by
/// seed. A figure that a row lacks counts nothing there; a figure is the ratio of its sum and its count over the resample.
std::map<std::string, Interval> bootstrap(const std::vector<Figures>& rows, uint64_t seed, int64_t resamples = 1000);

/// The same interval of any statistic of `rows` rows: `statistic` is given the numbers of the rows that were drawn. Its value
/// is that of all rows. `name` names the draws.
Interval bootstrap_of(size_t rows, uint64_t seed, const std::string& name,
                      const std::function<double(std::span<const size_t> drawn)>& statistic, int64_t resamples = 1000);

}  // namespace kullback
