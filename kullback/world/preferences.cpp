#include "kullback/world/preferences.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {

using at::Tensor;

WorldPairs all_pairs(const World& world) {
  const int64_t prompts = world.reference.size(0), responses = world.reference.size(1);
  constexpr int64_t most = 2'000'000;
  if (prompts * responses * responses > most) {
    fail("{} prompts with {} responses each make {} pairs, more than {}: make the world smaller, or sample pairs",
         prompts, responses, prompts * responses * responses, most);
  }
  std::vector<Tensor> prompt, chosen, rejected, weight;
  for (int64_t c = 0; c < prompts; ++c) {
    const PreferencePopulation pairs = preference_population(world.reference[c], world.proxy[c]);
    prompt.push_back(at::full_like(pairs.chosen, c));
    chosen.push_back(pairs.chosen);
    rejected.push_back(pairs.rejected);
    weight.push_back(pairs.weight * world.prompts[c]);
  }
  WorldPairs all{at::cat(prompt), at::cat(chosen), at::cat(rejected), at::cat(weight)};
  const Tensor possible = all.weight.nonzero().squeeze(1);
  return {all.prompts.index_select(0, possible), all.chosen.index_select(0, possible),
          all.rejected.index_select(0, possible), all.weight.index_select(0, possible)};
}

namespace {

/// Draws from log-probabilities by their inverse distribution function.
class Sampler {
 public:
  explicit Sampler(const Tensor& probabilities) : sums_(probabilities.cumsum(-1).contiguous()) {}
  int64_t draw(RandomStream& stream) const {
    const double* begin = sums_.const_data_ptr<double>();
    const double* end = begin + sums_.numel();
    const double* at = std::upper_bound(begin, end, stream.uniform() * end[-1]);
    return std::min<int64_t>(at - begin, sums_.numel() - 1);
  }

 private:
  Tensor sums_;
};

}  // namespace

WorldPairs sampled_pairs(const World& world, int64_t count, double label_noise, uint64_t seed, bool each_prompt) {
  const int64_t prompts = world.reference.size(0), total = each_prompt ? count * prompts : count;
  std::vector<Sampler> samplers;
  for (int64_t c = 0; c < prompts; ++c) samplers.emplace_back(world.reference[c].exp());
  const Sampler of_prompts(world.prompts);
  RandomStream stream(seed, "world/pairs");
  std::vector<int64_t> prompt, chosen, rejected;
  const auto reward = world.proxy.accessor<double, 2>();
  for (int64_t i = 0; i < total; ++i) {
    const int64_t c = each_prompt ? i / count : of_prompts.draw(stream);
    const auto& sampler = samplers[static_cast<size_t>(c)];
    const int64_t first = sampler.draw(stream), second = sampler.draw(stream);
    const double preferred = 1 / (1 + std::exp(reward[c][second] - reward[c][first]));
    const bool flipped = stream.uniform() < label_noise;
    const bool first_wins = (stream.uniform() < preferred) != flipped;
    prompt.push_back(c);
    chosen.push_back(first_wins ? first : second);
    rejected.push_back(first_wins ? second : first);
  }
  return {at::tensor(prompt, at::kLong), at::tensor(chosen, at::kLong), at::tensor(rejected, at::kLong),
          at::full({total}, 1.0 / static_cast<double>(total), at::kDouble)};
}

double label_entropy(const World& world, const WorldPairs& pairs) {
  const auto reward_of = [&](const Tensor& responses) {
    return world.proxy.flatten().index_select(0, pairs.prompts * world.proxy.size(1) + responses);
  };
  const Tensor lead = reward_of(pairs.chosen) - reward_of(pairs.rejected);
  return (pairs.weight * -at::log_sigmoid(lead)).sum().item<double>();
}

namespace {

/// Where the numbers of every token of responses stand in tables of prefixes.
struct Places {
  Tensor tokens;    // [B,L] index into [C P V]
  Tensor prefixes;  // [B,L] index into [C P]
  Tensor mask;      // [B,L]
};

Places places(const World& world, const Tensor& prompts, const Tensor& responses) {
  const Tensor prefixes =
      world.table.prefixes.index_select(0, responses) + (prompts * world.space.prefixes()).unsqueeze(1);
  return {.tokens = prefixes * world.space.vocabulary + world.table.tokens.index_select(0, responses),
          .prefixes = prefixes,
          .mask = world.table.mask.index_select(0, responses)};
}

/// Responses of the reference to each pair's prompt, the same at every visit. [B K] int64
Tensor own_samples(const World& world, const WorldPairs& pairs, int64_t count) {
  std::vector<Sampler> samplers;
  for (int64_t c = 0; c < world.reference.size(0); ++c) samplers.emplace_back(world.reference[c].exp());
  RandomStream stream(0, "world/samples");
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < pairs.prompts.size(0); ++i) {
    const Sampler& sampler = samplers[static_cast<size_t>(pairs.prompts[i].item<int64_t>())];
    for (int64_t k = 0; k < count; ++k) drawn.push_back(sampler.draw(stream));
  }
  return at::tensor(drawn, at::kLong);
}

/// Rows of a reference that does not see the prompt: the mixture of its laws over prompts.
Tensor without_prompt(const World& world) {
  const Tensor mixed = at::logsumexp(world.reference + world.prompts.log().unsqueeze(1), 0, /*keepdim=*/true);
  return conditional_logps(world.space, mixed).expand_as(world.reference_rows);
}

}  // namespace

PreferenceBatch preference_batch(const World& world, const WorldPairs& pairs, const Needs& needs, const Rows& policy,
                                 int64_t visit) {
  const Tensor policy_rows = log_probabilities(policy);  // [C P, V]
  const Tensor reference_rows = needs.reference_without_prompt ? without_prompt(world) : world.reference_rows;
  std::vector<Tensor> divergences;  // [C P] each
  if (!needs.divergences.empty()) {
    HeadRequest request;
    request.divergences = needs.divergences;
    divergences = head_statistics(policy, as_rows(world.reference_rows), request).divergences;
  }
  Tensor reference_hidden;
  if (needs.hidden) {
    if (!world.transformer) fail("the method needs hidden states, which a table has not: use --policy transformer");
    Transformer reference = *world.transformer;
    const at::NoGradGuard no_grad;
    reference_hidden = transformer_policy(reference, world.space, world.prompts.size(0)).rows().hidden;
  }
  RandomStream stream(static_cast<uint64_t>(visit), "world/uniforms");
  const auto side = [&](const Tensor& prompts, const Tensor& responses) {
    const Places at = places(world, prompts, responses);
    Side s{.logps = look_up(policy_rows, at.tokens), .reference_logps = {}, .mask = at.mask, .divergences = {}};
    if (needs.reference_logps) s.reference_logps = look_up(reference_rows, at.tokens);
    for (const Tensor& divergence : divergences) s.divergences.push_back(look_up(divergence, at.prefixes));
    for (int64_t set = 0; set < needs.uniforms; ++set) s.uniforms.push_back(uniforms(at.mask.sizes(), stream));
    if (needs.hidden) {
      const auto states = [&](const Tensor& hidden) {  // [C P,D] -> [B,L,D]
        return hidden.index_select(0, at.prefixes.flatten()).reshape({at.mask.size(0), at.mask.size(1), -1});
      };
      s.hidden = states(policy.hidden), s.reference_hidden = states(reference_hidden);
    }
    return s;
  };
  PreferenceBatch batch{
      .chosen = {}, .rejected = side(pairs.prompts, pairs.rejected), .weight = pairs.weight, .pairs_in_step = 1};
  batch.vocabulary = world.space.vocabulary;
  if (needs.samples > 0) {
    const Tensor drawn = own_samples(world, pairs, needs.samples);  // [B K]
    batch.chosen_pair = at::arange(pairs.prompts.size(0), at::kLong).repeat_interleave(needs.samples);
    batch.chosen = side(pairs.prompts.repeat_interleave(needs.samples), drawn);
  } else {
    batch.chosen = side(pairs.prompts, pairs.chosen);
  }
  if (needs.mismatched != 0) {
    const at::NoGradGuard no_grad;
    batch.mismatched =
        side(at::cat({pairs.prompts, pairs.prompts}), at::cat({pairs.chosen, pairs.rejected}).roll(-needs.mismatched));
    batch.mismatched.logps = batch.mismatched.logps.detach();
  }
  return batch;
}

}  // namespace kullback
