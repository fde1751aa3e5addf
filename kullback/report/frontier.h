#pragma once

#include <string>
#include <vector>

#include "kullback/report/number.h"
#include "kullback/report/page.h"
#include "kullback/report/plot.h"

namespace kullback {

/// A policy: how far it moved, and what that bought.
struct FrontierEntry {
  std::string name;
  Interval divergence, reward;
};

/// The most (or least) that can be had at each divergence, where it is known exactly.
struct FrontierCurve {
  std::string name;
  std::vector<double> divergence, reward;
};

/// Which entries no other one beats: none has at most the divergence and at least the reward, and less of the one or more of
/// the other. Entries whose numbers are not finite are on no front. `better`: whether more of the reward is better (higher,
/// neither) or less.
std::vector<bool> pareto_front(const std::vector<FrontierEntry>& entries, Better better = Better::higher);

/// Reward against divergence: a point with its intervals for each entry, named where they are few; the Pareto front as steps
/// where `front`; curves behind them.
Plot frontier_plot(const std::vector<FrontierEntry>& entries, Axis divergence, Axis reward,
                   const std::vector<FrontierCurve>& curves = {}, bool front = false, Better better = Better::higher);

}  // namespace kullback
