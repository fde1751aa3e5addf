#include "kullback/report/frontier.h"

#include <algorithm>
#include <cmath>

namespace kullback {
namespace {

bool is_finite(const FrontierEntry& entry) {
  return std::isfinite(entry.divergence.value) && std::isfinite(entry.reward.value);
}

constexpr int grey = 7;  // of the palette: what policies are held against, in no policy's colour

/// The front as steps: at a divergence between two of its entries nothing better is known than the nearer one.
Series front_series(const std::vector<FrontierEntry>& entries, Better better) {
  const std::vector<bool> on_front = pareto_front(entries, better);
  std::vector<std::pair<double, double>> corners;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (on_front[i]) corners.emplace_back(entries[i].divergence.value, entries[i].reward.value);
  }
  std::ranges::sort(corners);
  Series series{.name = "Pareto front", .mark = Mark::step, .dashed = true, .faint = true, .colour = grey};
  for (const auto& [divergence, reward] : corners) series.x.push_back(divergence), series.y.push_back(reward);
  return series;
}

}  // namespace

std::vector<bool> pareto_front(const std::vector<FrontierEntry>& entries, Better better) {
  const double sign = better == Better::lower ? -1 : 1;
  const auto beats = [&](const FrontierEntry& a, const FrontierEntry& b) {
    const double more = sign * (a.reward.value - b.reward.value), nearer = b.divergence.value - a.divergence.value;
    return more >= 0 && nearer >= 0 && (more > 0 || nearer > 0);
  };
  std::vector<bool> front;
  for (const FrontierEntry& entry : entries) {
    front.push_back(is_finite(entry) && std::ranges::none_of(entries, [&](const FrontierEntry& other) {
                      return is_finite(other) && beats(other, entry);
                    }));
  }
  return front;
}

Plot frontier_plot(const std::vector<FrontierEntry>& entries, Axis divergence, Axis reward,
                   const std::vector<FrontierCurve>& curves, bool front, Better better) {
  constexpr size_t most_named = 12;
  int colour = 0;
  Plot plot{.x = std::move(divergence), .y = std::move(reward), .series = {}, .references = {}};
  for (const FrontierCurve& curve : curves)
    plot.series.push_back({.name = curve.name, .x = curve.divergence, .y = curve.reward, .colour = grey});
  if (front) plot.series.push_back(front_series(entries, better));
  for (const FrontierEntry& entry : entries) {
    Series point{.name = entry.name,
                 .mark = Mark::points,
                 .x = {entry.divergence.value},
                 .y = {entry.reward.value},
                 .labels = {entry.name},
                 .show_labels = entries.size() <= most_named,
                 .colour = colour++ % grey};
    if (entry.reward.has_bounds()) point.low = {entry.reward.low}, point.high = {entry.reward.high};
    if (entry.divergence.has_bounds()) point.x_low = {entry.divergence.low}, point.x_high = {entry.divergence.high};
    plot.series.push_back(std::move(point));
  }
  return plot;
}

}  // namespace kullback
