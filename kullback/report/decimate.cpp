#include "kullback/report/decimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_set>

namespace kullback {
namespace {

constexpr std::size_t points_a_column = 5;  // first, lowest, highest, gap, last

void keep_of_column(std::span<const double> y, std::span<const double> low, std::span<const double> high,
                    std::size_t begin, std::size_t end, std::vector<std::size_t>& kept) {
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

std::vector<std::size_t> one_a_cell(std::span<const double> x, std::span<const double> y,
                                    const std::vector<std::size_t>& from, double cell) {
  const auto place = [&](double v) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(std::floor(v / cell), -1e9, 1e9)));
  };
  std::vector<std::size_t> kept;
  std::unordered_set<std::uint64_t> taken;
  for (const std::size_t i : from) {
    if (taken.insert((std::uint64_t{place(x[i])} << 32) | place(y[i])).second) kept.push_back(i);
  }
  return kept;
}

}  // namespace

std::vector<std::size_t> decimate_line(std::span<const double> y, std::span<const double> low,
                                       std::span<const double> high, std::size_t columns) {
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
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i]) && std::isfinite(y[i])) all.push_back(i);
  }
  if (all.size() <= limit) return all;
  std::vector<std::size_t> kept;
  for (double cell = 1; kept.empty() || (kept.size() > std::max<std::size_t>(1, limit / 4) && cell < 1e7); cell *= 2)
    kept = one_a_cell(x, y, all, cell);
  const std::size_t rest = limit > kept.size() ? limit - kept.size() : 0;
  for (std::size_t n = 0; n < rest; ++n) kept.push_back(all[n * all.size() / rest]);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

}  // namespace kullback
