#pragma once

#include <cstdint>
#include <map>
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

}  // namespace kullback
