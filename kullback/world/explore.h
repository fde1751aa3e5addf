#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kullback/world/training.h"
#include "kullback/world/world.h"

namespace kullback {

/// What is wanted of a look at a world. The reference, its optimum and best-of-n are always among the policies.
struct ViewRequest {
  double optimum_beta = 1;
  int64_t responses = 12;
  int64_t frontier = 24;
  std::vector<std::string> divergences = {};
  std::vector<std::pair<std::string, at::Tensor>> policies = {};  ///< further ones by name, rows [C,P,V]
};

struct ResponseView {
  std::string text;
  double reward = 0, reference = 0;
  std::vector<double> policies;  ///< probability under each of policy_names
};

/// All that there is to see, as plain numbers.
struct WorldView {
  std::string description;
  bool has_proxy = false;
  int64_t prompt = 0;  ///< the likeliest one, whose responses are shown
  double prompt_probability = 0;
  std::vector<std::string> policy_names;  ///< of ResponseView::policies
  std::vector<ResponseView> responses;    ///< by reward, the best first
  std::vector<FrontierPoint> frontier;
  std::vector<std::pair<std::string, Standing>> standings;
  std::vector<std::string> divergence_names;
  /// A policy's divergences from the reference: of responses, and of the next-token laws summed over a response.
  std::vector<std::pair<std::string, std::vector<std::pair<double, double>>>> divergences;
};
WorldView look_at(const World& world, const ViewRequest& request);

}  // namespace kullback
