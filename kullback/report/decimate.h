#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kullback {

/// Which points of a line are worth drawing on `columns` pixels: in each column the first, the last, the lowest and the
/// highest (over the interval too where one is given), and one gap where there is one. Increasing indices; all of them
/// where there are few. `low` and `high` are empty or as long as `y`.
std::vector<std::size_t> decimate_line(std::span<const double> y, std::span<const double> low,
                                       std::span<const double> high, std::size_t columns);

/// Which points of a cloud are worth drawing, at most `limit`: a quarter are the first in each cell of a grid, so
/// that no outlier is lost, the others are taken evenly from all, so that dense places look dense. `x` and `y` are in
/// pixels; those that are not finite are left out. Increasing indices.
std::vector<std::size_t> decimate_points(std::span<const double> x, std::span<const double> y, std::size_t limit);

}  // namespace kullback
