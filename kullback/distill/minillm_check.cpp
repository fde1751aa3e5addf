// How the cases of minillm's golden fixture are computed.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/minillm.h"
#include "kullback/lm/sampling.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs mixed_sampling_case(CheckCase& c) {
  const MinillmOptions o = fixture_options<MinillmOptions>(c, "minillm");
  const Tensor q = log_probabilities(fixture_rows(c, "student")), p = log_probabilities(fixture_rows(c, "teacher"));
  const Tensor mixed = mixture_logps(p, q, o.teacher_mix).exp().contiguous();  // [N,V]
  const Tensor u = c.tensor("uniforms").to(at::kDouble);
  Tensor tokens = at::empty({u.numel()}, at::kLong);
  for (int64_t i = 0; i < u.numel(); ++i) {
    const double* row = mixed.const_data_ptr<double>() + i * mixed.size(1);
    tokens[i] = draw(std::span(row, static_cast<size_t>(mixed.size(1))), u[i].item<double>());
  }
  const auto drawn = [&](const Tensor& logps) { return logps.gather(1, tokens.unsqueeze(1)).t(); };  // [1,N]
  const Tensor all = at::ones({1, u.numel()}, at::kBool);
  return {
      {"mixed_probs", mixed}, {"tokens", tokens}, {"weights", minillm_rewards(drawn(p), drawn(q), all, o).weights[0]}};
}

CheckOutputs rewards_case(CheckCase& c) {
  const auto logps = [&](const char* name) { return c.tensor(name).to(at::kDouble); };
  const MinillmRewards r = minillm_rewards(logps("teacher_logps"), logps("student_logps"), c.mask("mask"),
                                           fixture_options<MinillmOptions>(c, "minillm"));
  return {{"weights", r.weights}, {"rewards", r.rewards}, {"reverse_kl_estimate", r.reverse_kl_estimate}};
}

CheckOutputs loss_case(CheckCase& c) {
  const MinillmOptions o = fixture_options<MinillmOptions>(c, "minillm");
  Responses b, text;
  b.student = fixture_rows(c, "student", "logits_neg_inf"), b.teacher = fixture_rows(c, "teacher", "logits_neg_inf");
  b.labels = c.tensor("labels"), b.mask = c.mask("mask");
  if (c.has("pretrain_student_logits")) {
    text.student = fixture_rows(c, "pretrain_student"), text.teacher = fixture_rows(c, "pretrain_teacher");
    text.labels = c.tensor("pretrain_labels"), text.mask = c.mask("pretrain_mask");
  }
  const Tensor advantages = minillm_advantages(c.tensor("rewards"), b.mask, o);
  const MinillmLoss l = minillm_loss(b, advantages, c.tensor("old_logps"), c.tensor("weights"), text, o);
  CheckOutputs out{{"loss", l.loss},       {"advantages", advantages},
                   {"ratio", l.ratio},     {"clip_fraction", l.clip_fraction},
                   {"pg_loss", l.pg_loss}, {"single_step_loss", l.single_step_loss}};
  if (text.defined()) {
    out.insert({{"lm_loss", l.lm_loss}, {"soft_loss", l.soft_loss}, {"pretrain_loss", l.pretrain_loss}});
  }
  return out;
}

/// Every response once, its probability in the place of a weight: the loss's gradients are then exact ones.
CheckOutputs exact_world_case(CheckCase& c) {
  const SequenceSpace space{
      .vocabulary = c.option<int64_t>("vocab", 2), .length = c.option<int64_t>("length", 1), .ends = false};
  const double alpha = c.option("teacher_mix", 0.2);
  const Tensor student = c.tensor("student_prefix_logits"), teacher = c.tensor("teacher_prefix_logits").to(at::kDouble);
  const SequenceTable table = sequence_table(space);
  const Tensor prefixes = table.prefixes.reshape(-1);
  Responses b;
  b.student = as_rows(student.index_select(0, prefixes)), b.teacher = as_rows(teacher.index_select(0, prefixes));
  b.labels = table.tokens, b.mask = table.mask, b.tokens_in_step = 1;
  const auto logps = [&](const Rows& rows) {
    return label_logps(rows, table.tokens.reshape(-1)).detach().reshape(table.tokens.sizes());
  };
  const Tensor q = logps(b.student), p = logps(b.teacher), m = mixture_logps(p, q, alpha);
  MinillmOptions o{.teacher_mix = alpha, .gamma = 1, .length_norm = false, .reward_scaling = 1, .reward_clip = 0};
  o.whiten = MinillmOptions::Whiten::none, o.clip = 1,
  o.single_step_weight = MinillmOptions::SingleStepWeight::importance;
  const Tensor rewards = minillm_rewards(p, q, b.mask, o).rewards;
  enum class Return { none, inclusive, exclusive };
  const auto gradient = [&](Return what, bool single, const Tensor& weights) {
    o.single_step = single;
    o.reward_to_go =
        what == Return::exclusive ? MinillmOptions::RewardToGo::exclusive : MinillmOptions::RewardToGo::inclusive;
    const Tensor advantages = what == Return::none ? at::zeros_like(rewards) : minillm_advantages(rewards, b.mask, o);
    const Tensor loss = minillm_loss(b, advantages, q, weights.expand_as(q), {}, o).loss;
    return torch::autograd::grad({loss}, {student}, {}, /*retain_graph=*/true)[0];
  };
  const auto of_response = [](const Tensor& token_logps) { return token_logps.sum(1, true).exp(); };  // [R,1]
  const Tensor by_student = of_response(q), by_mixture = of_response(m);
  const Tensor token_weight = minillm_rewards(p, q, b.mask, o).weights;
  const Tensor before = (q - m).cumsum(1) - (q - m);  // ln of the weights of the tokens before
  const Tensor responses = (q - m).sum(1, true).exp() * by_mixture;
  const auto law = [&](const Tensor& logits) {
    return response_logps(space, log_probabilities(as_rows(logits)).unsqueeze(0));
  };
  const Tensor reverse_kl = response_divergence(divergence("kl").from_policy(), law(student), law(teacher)).sum();
  return {{"loss", reverse_kl},
          {"gradient_single", gradient(Return::none, true, by_student)},
          {"gradient_long", gradient(Return::exclusive, false, by_student)},
          {"gradient_inclusive", gradient(Return::inclusive, false, by_student)},
          {"gradient_mixed_product_weights",
           gradient(Return::none, true, by_mixture * before.exp()) + gradient(Return::exclusive, false, responses)},
          {"gradient_mixed_token_weights", gradient(Return::exclusive, true, by_mixture * token_weight)}};
}

const RegisteredCheck mixed_sampling_check{"minillm", "mixed_sampling", mixed_sampling_case};
const RegisteredCheck rewards_check{"minillm", "rewards", rewards_case};
const RegisteredCheck loss_check{"minillm", "loss", loss_case};
const RegisteredCheck world_check{"minillm", "exact_world", exact_world_case};

}  // namespace
}  // namespace kullback
