#pragma once

#include <map>
#include <string>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/report/frontier.h"

namespace kullback {

/// What a run or a comparison wrote of a policy on held-out rows: figures by the names of evaluation.json, and what they were
/// of the policy that it began with.
struct EvaluatedPolicy {
  std::string name;  ///< the folder
  std::map<std::string, Interval> after, before;
};

/// One argument of `kullback frontier`: a run or several in a folder, a folder of `kullback compare`, a look at an exact
/// world, or a checkpoint.
struct FrontierSource {
  enum class Kind { run, comparison, world, checkpoint } kind = Kind::checkpoint;
  std::string path;
};
std::vector<FrontierSource> frontier_sources(const std::string& argument);

/// Of a run, or of B in a folder of `kullback compare`.
EvaluatedPolicy read_evaluated(const FrontierSource& source);

/// What `kullback world` wrote: where its policies stand and the exact frontier, KL in nats a response.
struct ExactWorld {
  Json options;
  std::vector<FrontierEntry> entries;
  std::vector<double> most;  ///< of each entry: the most reward that any policy has at its KL
  FrontierCurve frontier;
};
ExactWorld read_world(const std::string& path);

/// The model or adapter that a run left behind, or the path itself.
std::string checkpoint_of(const FrontierSource& source);
/// The model that a run began with; empty where its configuration names none.
std::string beginning_of(const FrontierSource& source);

/// Short names that tell the paths apart: their last parts, or as many as it takes.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

}  // namespace kullback
