#include "kullback/report/decimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_set>

namespace kullback {
namespace {

constexpr std::size_t points_a_column = 5;  // first, lowest, highest, gap, last

void keep_of_column(std::span<const double> y, std::span<const double> low, std::span<const double> high, std::size_t begin,
                    std::size_t end, std::vector<std::size_t>& kept) {
  const std::size_t none = end;
  std::size_t lowest = none, highest = none, gap = none;
  const auto low_at = [&](std::size_t i) { return low.empty() || !std::isfinite(low[i]) ? y[i] : low[i]; };
  const auto high_at = [&](std::size_t i) { return high.empty() || !std::isfinite(high[i]) ? y[i] : high[i]; };
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(y[i])) {
      if (gap == none) gap = i;
      continue;
    }
    if (lowest == none || low_at(i) < low_at(lowest)) lowest = i;
    if (highest == none || high_at(i) > high_at(highest)) highest = i;
  }
  std::vector<std::size_t> column{begin, lowest, highest, gap, end - 1};
  std::erase(column, none);
  std::sort(column.begin(), column.end());
  column.erase(std::unique(column.begin(), column.end()), column.end());
  kept.insert(kept.end(), column.begin(), column.end());
}

}  // namespace

std::vector<std::size_t> decimate_line(std::span<const double> y, std::span<const double> low, std::span<const double> high,
                                       std::size_t columns) {
  std::vector<std::size_t> kept;
  columns = std::max<std::size_t>(1, columns);
  if (y.size() <= points_a_column * columns) {
    kept.resize(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) kept[i] = i;
    return kept;
  }
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t begin = column * y.size() / columns, end = (column + 1) * y.size() / columns;
    if (begin < end) keep_of_column(y, low, high, begin, end, kept);
  }
  return kept;
}

std::vector<std::size_t> decimate_points(std::span<const double> x, std::span<const double> y, std::size_t limit) {
  for (double cell = 0.5;; cell *= 2) {
    std::vector<std::size_t> kept;
    std::unordered_set<std::uint64_t> taken;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
      const auto column = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(std::floor(x[i] / cell), -1e9, 1e9)));
      const auto row = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(std::floor(y[i] / cell), -1e9, 1e9)));
      // A cloud that fits is drawn whole: only larger ones are thinned.
      if (x.size() > limit && !taken.insert((std::uint64_t{column} << 32) | row).second) continue;
      kept.push_back(i);
    }
    if (kept.size() <= limit || kept.size() <= 1 || cell > 1e6) return kept;
  }
}

}  // namespace kullback
