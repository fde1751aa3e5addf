#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kullback/train/distillation.h"

namespace kullback {

/// Responses that a method keeps in its state, and so in checkpoints, under a name; none where nothing is kept.
std::vector<Response> stored_responses(const DistillationState& state, const std::string& name);
void store_responses(DistillationState& state, const std::string& name, const std::vector<Response>& responses);

/// How a method goes through what it draws: `size` responses at once (a rollout), each trained on `passes` times, a step's
/// number of them at a time, in an order that is new in each pass. `name` names the orders.
struct Rollouts {
  std::string name;
  int64_t size = 1, passes = 1;
};

/// Where a step stands in that: its rollout, from 0; whether it is the rollout's first step; which of its responses are the
/// step's. The last step of a pass begins again where too few are left.
struct RolloutPlace {
  int64_t rollout = 0;
  bool first = false;
  std::vector<size_t> responses;
};
RolloutPlace rollout_place(const Rollouts& rollouts, const DistillationStep& step);

/// The training rows whose prompts a rollout answers: all go by in shuffled order, again and again.
std::vector<int64_t> rollout_examples(const Rollouts& rollouts, const DistillationStep& step, int64_t rollout);

/// The responses of the step, which may not be of its own examples: `draw(rollout)` makes a new rollout, which the state keeps until the next.
std::vector<Response> rollout_responses(const Rollouts& rollouts, DistillationStep& step,
                                        const std::function<std::vector<Response>(int64_t rollout)>& draw);

/// Adds what drawing a rollout left in the state under "figures", once.
void add_rollout_figures(DistillationStep& step, Figures& figures);

/// A number that each token of some responses carries, [B,T] with 0 beyond their ends; and which places those are.
at::Tensor padded_numbers(const std::vector<Response>& responses, const std::string& name);
at::Tensor padded_mask(const std::vector<Response>& responses);
/// Gives each token of the responses its number of `values` [B,T].
void keep_numbers(std::span<Response> responses, const std::string& name, const at::Tensor& values);

}  // namespace kullback
