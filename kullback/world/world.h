#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/base/options.h"
#include "kullback/lm/transformer.h"
#include "kullback/world/sequences.h"

namespace kullback {

/// How a world is made. Everything in it is a function of these.
struct WorldOptions {
  enum class Policy { tabular, transformer };
  int64_t vocabulary = 3;
  int64_t length = 3;
  int64_t prompts = 2;
  Policy policy = Policy::tabular;
  double spread = 1;              ///< deviation of the reference's logits
  std::string reward = "random";  ///< see reward_grammar
  std::string proxy;              ///< what preferences and best-of-n see; empty: the reward itself
  int64_t seed = 0;
};
const Options<WorldOptions>& world_options();

/// A world that is enumerated: C prompts, P prefixes, R responses. All numbers are float64.
struct World {
  SequenceSpace space;
  SequenceTable table;
  at::Tensor prompts;                      ///< [C] probability of each prompt
  at::Tensor reference_rows;               ///< [C,P,V] log-probabilities of the next token
  at::Tensor reference;                    ///< [C,R] log-probabilities of responses
  at::Tensor reward;                       ///< [C,R] what is meant
  at::Tensor proxy;                        ///< [C,R] what is optimised; the same tensor unless misspecified
  std::optional<Transformer> transformer;  ///< the reference as a model, if it is one
};

/// Error for sizes that are out of range and for rewards that cannot be read.
World make_world(const WorldOptions& options);

/// A world of a given reference and reward, each [C,R], prompts equally likely.
World make_world(const SequenceSpace& space, const at::Tensor& reference, const at::Tensor& reward);

/// Expected value over prompts of [C].
double over_prompts(const World& world, const at::Tensor& values);

/// Where a policy of the world stands.
struct Standing {
  double reward = 0, proxy = 0;   ///< expected
  double kl = 0, reverse_kl = 0;  ///< KL(policy || reference) and KL(reference || policy) of responses, nats
  double entropy = 0;             ///< of responses, nats
  double length = 0;              ///< expected tokens, the end token counted
  double frontier_reward = 0;     ///< most reward that any policy has at this KL
  double gap() const { return frontier_reward - reward; }
};
/// rows: [C,P,V] log-probabilities.
Standing standing(const World& world, const at::Tensor& rows);

/// The best policy at a strength of the constraint: reference exp(reward / beta) / Z, prompt by prompt. [C,R]
at::Tensor best_policy(const World& world, double beta);

/// A point of the frontier: no policy has more reward at this KL(policy || reference).
struct FrontierPoint {
  double beta = 0, kl = 0, reward = 0;
};
FrontierPoint frontier_point(const World& world, double beta);
/// `count` points from the reference itself (beta infinite) to nearly the most KL that reward can buy, evenly spaced.
std::vector<FrontierPoint> frontier(const World& world, int64_t count);
/// Most reward at a KL of at most `kl`.
double frontier_reward(const World& world, double kl);

}  // namespace kullback
