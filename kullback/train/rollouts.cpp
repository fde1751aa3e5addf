#include "kullback/train/rollouts.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "kullback/base/random.h"

namespace kullback {
namespace {

std::vector<int64_t> shuffled(int64_t count, uint64_t seed, const std::string& purpose, int64_t number) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  RandomStream(seed, purpose, static_cast<uint64_t>(number)).shuffle(order);
  return order;
}

}  // namespace

std::vector<Response> stored_responses(const DistillationState& state, const std::string& name) {
  std::vector<Response> responses;
  if (!state.values.contains(name)) return responses;
  for (const Json& kept : state.values.at(name)) {
    responses.push_back({.example = kept.at("example").get<int64_t>(),
                         .tokens = kept.at("tokens").get<std::vector<int32_t>>(),
                         .source = kept.at("source").get<ResponseSource>(),
                         .numbers = kept.at("numbers").get<std::map<std::string, std::vector<double>>>(),
                         .teacher_tokens = kept.at("teacher_tokens").get<std::vector<int32_t>>()});
  }
  return responses;
}

void store_responses(DistillationState& state, const std::string& name, const std::vector<Response>& responses) {
  Json list = Json::array();
  for (const Response& r : responses) {
    list.push_back({{"example", r.example},
                    {"tokens", r.tokens},
                    {"source", r.source},
                    {"numbers", r.numbers},
                    {"teacher_tokens", r.teacher_tokens}});
  }
  state.values[name] = std::move(list);
}

RolloutPlace rollout_place(const Rollouts& r, const DistillationStep& step) {
  const auto portion = static_cast<int64_t>(step.examples.size());
  const int64_t a_pass = (r.size + portion - 1) / portion;  // steps
  const int64_t within = step.step % (a_pass * r.passes), begin = within % a_pass * portion;
  const std::vector<int64_t> order = shuffled(r.size, step.seed, r.name + "/passes", step.step / a_pass);
  RolloutPlace place{.rollout = step.step / (a_pass * r.passes), .first = within == 0, .responses = {}};
  for (int64_t i = begin; i < begin + portion; ++i)
    place.responses.push_back(static_cast<size_t>(order[static_cast<size_t>(i % r.size)]));
  return place;
}

std::vector<int64_t> rollout_examples(const Rollouts& r, const DistillationStep& step, int64_t rollout) {
  const int64_t all = step.run.examples();
  std::vector<int64_t> examples, order;
  for (int64_t i = rollout * r.size, pass = -1; i < (rollout + 1) * r.size; ++i) {
    if (i / all != pass) order = shuffled(all, step.seed, r.name + "/prompts", pass = i / all);
    examples.push_back(order[static_cast<size_t>(i % all)]);
  }
  return examples;
}

std::vector<Response> rollout_responses(const Rollouts& r, DistillationStep& step,
                                        const std::function<std::vector<Response>(int64_t)>& draw) {
  const RolloutPlace place = rollout_place(r, step);
  std::vector<Response> all;
  if (place.first) {
    all = draw(place.rollout);
    store_responses(step.state, "rollout", all);
  } else {
    all = stored_responses(step.state, "rollout");
  }
  std::vector<Response> chosen;
  for (const size_t i : place.responses) chosen.push_back(all[i]);
  return chosen;
}

void add_rollout_figures(DistillationStep& step, Figures& figures) {
  if (!step.state.values.contains("figures")) return;
  for (const auto& [name, value] : step.state.values["figures"].items()) figures[name] = {value.get<double>(), 1};
  step.state.values.erase("figures");
}

namespace {

int64_t longest(const std::vector<Response>& responses) {
  size_t length = 1;
  for (const Response& r : responses) length = std::max(length, r.tokens.size());
  return static_cast<int64_t>(length);
}

}  // namespace

at::Tensor padded_numbers(const std::vector<Response>& responses, const std::string& name) {
  const int64_t length = longest(responses);
  at::Tensor table = at::zeros({std::ssize(responses), length}, at::kDouble);
  double* row = table.mutable_data_ptr<double>();
  for (const Response& r : responses) {
    std::ranges::copy(r.numbers.at(name), row);
    row += length;
  }
  return table;
}

at::Tensor padded_mask(const std::vector<Response>& responses) {
  at::Tensor mask = at::zeros({std::ssize(responses), longest(responses)}, at::kBool);
  for (int64_t b = 0; b < mask.size(0); ++b)
    mask[b].narrow(0, 0, std::ssize(responses[static_cast<size_t>(b)].tokens)).fill_(true);
  return mask;
}

void keep_numbers(std::span<Response> responses, const std::string& name, const at::Tensor& values) {
  const at::Tensor table = values.to(at::kDouble).contiguous();
  const double* row = table.const_data_ptr<double>();
  for (Response& r : responses) {
    r.numbers[name].assign(row, row + r.tokens.size());
    row += table.size(1);
  }
}

}  // namespace kullback
