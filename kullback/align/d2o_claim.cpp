// What D2O claims: bad responses are unlearnt without losing the good ones, where gradient ascent on them forgets everything.
// That eleven samples spread less than one, which the card also saw, does not hold for these seeds and is not asserted.
#include <ATen/ATen.h>

#include "kullback/align/d2o.h"
#include "kullback/base/random.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

constexpr int64_t responses = 12, harmful = 4, batch = 4;  // the first four responses are the harmful ones

enum class Way { gradient_ascent, one_sample, eleven_samples };

/// So many draws of a law [R], each by a uniform number: int64.
Tensor draws(const Tensor& law, int64_t count, RandomStream& stream) {
  return (uniforms({count, 1}, stream) >= law.cumsum(0).unsqueeze(0)).sum(1).clamp_max(law.size(0) - 1);
}

/// One batch's loss at a policy: the mean log-probability of the negatives, which gradient ascent lowers, or D2O's loss.
Tensor loss(Way way, const Tensor& policy, const Tensor& reference, RandomStream& stream) {
  const Tensor bad = draws(reference.narrow(0, 0, harmful).softmax(0), batch, stream);
  if (way == Way::gradient_ascent) return policy.index_select(0, bad).mean();
  const int64_t samples = way == Way::one_sample ? 1 : 11;
  const Tensor own = draws(reference.exp(), batch * samples, stream);
  const auto side = [&](const Tensor& which) {
    return Side{.logps = policy.index_select(0, which).unsqueeze(1),
                .reference_logps = reference.index_select(0, which).unsqueeze(1),
                .mask = at::ones({which.size(0), 1}, at::kBool),
                .divergences = {}};
  };
  return d2o_loss({.chosen = side(own),
                   .rejected = side(bad),
                   .weight = {},
                   .chosen_pair = at::arange(batch, at::kLong).repeat_interleave(samples)},
                  {.beta = 0.1, .alpha = 0.1, .samples = samples})
      .value;
}

/// KL(good part of the reference || policy): what was lost of the responses that nobody complained about.
double good_lost(const Tensor& reference, const Tensor& policy) {
  const Tensor good = reference.narrow(0, harmful, responses - harmful).log_softmax(0);
  return (good.exp() * (good - policy.narrow(0, harmful, responses - harmful))).sum().item<double>();
}

struct Ended {
  double at_matched_harm = NAN, after_long = NAN;
};

/// Tabular gradient descent: until the policy's harmful mass is below 0.05, and for 400 larger steps after that.
Ended trained(Way way, uint64_t seed) {
  RandomStream stream(seed, "claim/d2o");
  const Tensor reference = at::log_softmax(normals({responses}, stream), 0);
  Tensor logits = reference.clone().requires_grad_(true);
  const auto step = [&](double rate) {
    loss(way, at::log_softmax(logits, 0), reference, stream).backward();
    logits = (logits - rate * logits.grad()).detach().requires_grad_(true);
  };
  Ended ended;
  const auto policy = [&] { return at::log_softmax(logits.detach(), 0); };
  for (int i = 0; i < 20000; ++i) {
    if (policy().narrow(0, 0, harmful).exp().sum().item<double>() < 0.05) {
      ended.at_matched_harm = good_lost(reference, policy());
      break;
    }
    step(way == Way::gradient_ascent ? 0.05 : 1);  // the same push on a bad response: sigmoid(0) * 0.1 * 1
  }
  for (int i = 0; i < 400; ++i) step(way == Way::gradient_ascent ? 2 : 40);
  ended.after_long = good_lost(reference, policy());
  return ended;
}

struct Summary {
  double mean, deviation, after_long;
};

Summary over_seeds(Way way) {
  std::vector<double> matched, after_long;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Ended ended = trained(way, seed);
    matched.push_back(ended.at_matched_harm), after_long.push_back(ended.after_long);
  }
  const Tensor m = at::tensor(matched, at::kDouble);
  return {m.mean().item<double>(), m.std().item<double>(), at::tensor(after_long, at::kDouble).mean().item<double>()};
}

ClaimResult run(bool with_baseline) {
  const Summary ascent = over_seeds(Way::gradient_ascent), one = over_seeds(Way::one_sample),
                d2o = with_baseline ? ascent : over_seeds(Way::eleven_samples);
  Table table{.title = "What is lost of the good responses, KL(good part of the reference || policy)",
              .columns = {text_column("trained by"), number_column("at harmful mass 0.05", significant(3), "nats"),
                          number_column("its deviation over 12 seeds", significant(3), "nats"),
                          number_column("after 400 larger steps", significant(3), "nats")}};
  for (const auto& [name, s] : {std::pair<const char*, const Summary&>{"gradient ascent on the bad ones", ascent},
                                {"D2O with one sample", one},
                                {"D2O with eleven samples", d2o}}) {
    table.rows.push_back({name, s.mean, s.deviation, s.after_long});
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_least("lost at the same harm: gradient ascent less D2O, nats", ascent.mean - d2o.mean, 0.005),
      at_least("deviation over seeds: gradient ascent less D2O", ascent.deviation - d2o.deviation, 0.001),
      at_least("lost by long gradient ascent, nats", ascent.after_long, 20),
      at_most("lost by as long a D2O, nats", d2o.after_long, 0.1 * ascent.after_long)};
  return result;
}

const RegisteredClaim claim{
    {.name = "d2o",
     .method = "d2o",
     .statement =
         "At the same remaining harm D2O keeps more of the good responses than gradient ascent on the bad ones, "
         "and with less spread over seeds; trained on, gradient ascent forgets everything "
         "and D2O does not.",
     .paper_says =
         "Duan et al. 2024: harmfulness 1.36 (Alpaca) becomes 1.21 by gradient ascent and -4.27 by D2O with 11 "
         "samples, with the general abilities kept; gradient ascent alone unlearns catastrophically.",
     .baseline = "gradient ascent on the bad responses in D2O's place",
     .run = run}};

}  // namespace
}  // namespace kullback
