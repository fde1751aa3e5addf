// What the estimators of KL claim, and the identities between gradients of KL that they rest on, by enumeration.
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/measure/kl_population.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"
#include "kullback/world/policy.h"

namespace kullback {
namespace {

using at::Tensor;

double number(const Tensor& scalar) { return scalar.item<double>(); }

Tensor gradient(const Tensor& value, const Tensor& of) {
  const Tensor g = torch::autograd::grad({value}, {of}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true)[0];
  return g.defined() ? g : at::zeros_like(of);
}

/// Length of the difference of two gradients.
double apart(const Tensor& a, const Tensor& b) { return number((a - b).norm()); }

/// A random policy not far from a random reference, as a table that takes gradients.
struct Pair {
  SequenceSpace space;
  Tensor policy, reference;  // [1,P,V]
};
Pair random_pair(uint64_t seed) {
  const SequenceSpace space{.vocabulary = 4, .length = 3};
  RandomStream stream(seed, "claim/kl-estimators");
  const Tensor reference = random_rows(space, 1, 1, stream);
  const Tensor policy = (reference + random_rows(space, 1, 0.5, stream)).detach().requires_grad_(true);
  return {space, policy, reference};
}

/// Variances of k1 and rb where both models are tiny transformers.
std::pair<double, double> transformer_variances() {
  const SequenceSpace space{.vocabulary = 4, .length = 4};
  const at::NoGradGuard no_grad;
  const auto rows = [&](uint64_t seed) {
    Transformer model = world_transformer(space, 1, 1, seed);
    return transformer_policy(model, space, 1).log_rows(space);
  };
  const auto moments = estimator_moments(kl_population(space, rows(1), rows(2)));
  return {number(moments.front().second.variance), number(moments.back().second.variance)};
}

struct Use {
  const char* name;
  const char* what;
  bool right;
};
constexpr Use uses[] = {{"k1_as_loss", "k1 as a loss", false},
                        {"k2_tokens_as_loss", "k2 of tokens as a loss", false},
                        {"k2_sequence_as_loss", "k2 of the sequence as a loss", true},
                        {"k3_tokens_as_loss", "k3 of tokens as a loss", false},
                        {"k3_sequence_as_loss", "k3 of the sequence as a loss", false},
                        {"k3_tokens_with_ratio", "k3 of tokens times the ratio", false},
                        {"rb_as_loss", "rb as a loss", false},
                        {"rb_with_prefix_term", "rb with its prefix term", true},
                        {"k1_as_reward", "k1 in the reward", true},
                        {"k2_as_reward", "k2 in the reward", false},
                        {"k3_as_reward", "k3 in the reward", false}};

ClaimResult estimators(bool with_baseline) {
  ClaimResult result;
  Table values{
      .title = "Exact mean and variance (vocabulary 4, up to 3 tokens, 5 random worlds: the last one's numbers)",
      .columns = {text_column("estimator"), number_column("mean"), number_column("bias"), number_column("variance")}};
  Table gradients{.title = "Exact gradient against that of KL(policy || reference)",
                  .columns = {text_column("use"), text_column("expected to be right"),
                              number_column("distance from the true gradient"), number_column("its length")}};
  double bias = 0, k2_bias = INFINITY, variance_ratio = 0, right = 0, wrong = INFINITY, k3_forward = 0, k1_loss = 0;
  // Where rb has to give way to its baseline, k1 takes its place in every role.
  const std::string best = with_baseline ? "k1" : "rb", best_use = with_baseline ? "k1_as_loss" : "rb_with_prefix_term";
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Pair pair = random_pair(seed);
    const KlPopulation p = kl_population(pair.space, pair.policy, pair.reference);
    const double kl = number(p.kl());
    values.rows.clear(), gradients.rows.clear();
    double k1_variance = 0;
    for (const auto& [name, moments] : estimator_moments(p)) {
      const double mean = number(moments.mean), variance = number(moments.variance);
      values.rows.push_back({name, mean, mean - kl, variance});
      const bool biased = name.starts_with("k2");
      if (biased) k2_bias = std::min(k2_bias, std::abs(mean - kl) / kl);
      if (!biased) bias = std::max(bias, std::abs(mean - kl));
      if (name == "k1") k1_variance = variance;
      if (name == best) variance_ratio = std::max(variance_ratio, variance / k1_variance);
    }
    const Tensor truth = gradient(p.kl(), pair.policy), forward = gradient(p.forward_kl(), pair.policy);
    const double size = number(truth.norm());
    for (const Use& use : uses) {
      const Tensor g = gradient(estimator_loss(p, use.name), pair.policy);
      const double distance = apart(g, truth);
      gradients.rows.push_back({use.what, use.right ? "yes" : "no", distance, number(g.norm())});
      if (use.right && use.name != std::string("rb_with_prefix_term")) right = std::max(right, distance);
      if (!use.right) wrong = std::min(wrong, distance / size);
      if (use.name == std::string("k3_sequence_as_loss")) k3_forward = std::max(k3_forward, apart(g, forward));
      if (use.name == std::string("k1_as_loss")) k1_loss = std::max(k1_loss, number(g.norm()));
    }
    right = std::max(right, apart(gradient(estimator_loss(p, best_use), pair.policy), truth));
  }
  const auto [of_k1, of_rb] = transformer_variances();
  result.tables = {values, gradients};
  result.assertions = {
      at_most("largest bias of k1, k3 and rb", bias, 1e-12),
      at_least("least bias of k2, of the KL", k2_bias, 0.001),
      at_most(best + ": largest variance, of k1's", variance_ratio, 0.5),
      at_most(best + " with tiny transformers: variance, of k1's", (with_baseline ? of_k1 : of_rb) / of_k1, 0.9),
      at_most("largest error of the gradients called right", right, 1e-12),
      at_least("least error of the gradients called wrong, of the true gradient", wrong, 0.01),
      at_most("k3 of the sequence as a loss: distance from the gradient of KL(reference || policy)", k3_forward, 1e-12),
      at_most("k1 as a loss: length of its gradient", k1_loss, 1e-12)};
  return result;
}

/// Schulman's table: samples of N(0,1), log-ratio to N(mu,1).
ClaimResult gaussian(bool with_baseline) {
  using Estimator = KlEstimateOptions::Estimator;
  ClaimResult result;
  Table table{.title = "KL(N(0,1) || N(mu,1)): standard deviation of one sample and bias, over the KL",
              .columns = {number_column("mu"), text_column("estimator"), number_column("deviation / KL"),
                          number_column("bias / KL"), number_column("the note says")}};
  struct Row {
    double mu, k1, k2, k3, k2_bias;
  };
  double largest = 0;
  for (const Row& row : {Row{0.1, 20, 1.42, 1.42, 0.0025}, Row{1, 2, 1.73, 1.70, 0.25}}) {
    for (const auto& [name, estimator, said] :
         {std::tuple{"k1", Estimator::k1, row.k1}, {"k2", Estimator::k2, row.k2}, {"k3", Estimator::k3, row.k3}}) {
      const GaussianKlCheck check = gaussian_kl_check(with_baseline ? Estimator::k1 : estimator, row.mu);
      table.rows.push_back({row.mu, name, check.deviation_over_kl, check.bias_over_kl, said});
      largest = std::max(largest, std::abs(check.deviation_over_kl - said) / said);
      if (estimator == Estimator::k2) largest = std::max(largest, std::abs(check.bias_over_kl - row.k2_bias));
    }
  }
  result.tables = {table};
  result.assertions = {at_most("largest difference from the note's table", largest, 0.01)};
  return result;
}

/// The identities on which alignment and distillation rest, each side computed by its own road.
ClaimResult gradient_identities(bool with_baseline) {
  ClaimResult result;
  Table table{
      .title = "Both sides of each identity, largest over 5 random worlds",
      .columns = {text_column("identity"), number_column("length of the gradient"), number_column("difference")}};
  struct Identity {
    const char* what;
    double length = 0, difference = 0;
  };
  Identity identities[] = {{"grad KL(policy||reference) = E_policy[(ln policy - ln reference) grad ln policy]"},
                           {"grad KL(reference||policy) = -E_reference[grad ln policy]"},
                           {"grad (E[reward] - beta KL(policy||reference)) = -beta grad KL(policy||pi*)"},
                           {"grad of maximum likelihood on samples of pi* = -grad KL(pi*||policy)"},
                           {"sum over the tokens: grad KL(policy||reference) = grad E_policy[sum_t KL_t]"}};
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Pair pair = random_pair(seed);
    const SequenceSpace& space = pair.space;
    const Tensor rows = log_probabilities(as_rows(pair.policy)).reshape(pair.policy.sizes());
    const Tensor policy = response_logps(space, rows), reference = response_logps(space, pair.reference);
    RandomStream stream(seed, "claim/kl-gradients");
    const Tensor reward = response_logps(space, random_rows(space, 1, 2, stream));
    constexpr double beta = 0.7;
    const Tensor best = optimum(reference, reward, beta).logps;
    const auto divergence_gradient = [&](Direction direction, const Tensor& other) {
      // The baseline is the usual confusion of the two directions.
      const bool forward = (direction == Direction::from_reference) != with_baseline;
      const RowDivergence kl{divergence("kl"), forward ? Direction::from_reference : Direction::from_policy};
      return gradient(response_divergence(kl, policy, other).sum(), pair.policy);
    };
    const Tensor p = policy.detach().exp();
    const Tensor reverse = divergence_gradient(Direction::from_policy, reference);
    const std::pair<Tensor, Tensor> sides[] = {
        {reverse, gradient((p * (policy.detach() - reference) * policy).sum(), pair.policy)},
        {divergence_gradient(Direction::from_reference, reference),
         gradient(-(reference.exp() * policy).sum(), pair.policy)},
        {gradient((policy.exp() * reward).sum(), pair.policy) - beta * reverse,
         -beta * divergence_gradient(Direction::from_policy, best)},
        {gradient((best.exp() * policy).sum(), pair.policy), -divergence_gradient(Direction::from_reference, best)},
        {reverse,
         gradient(token_divergence(space, divergence("kl").from_policy(), rows, pair.reference).sum(), pair.policy)}};
    for (size_t i = 0; i < std::size(sides); ++i) {
      identities[i].length = std::max(identities[i].length, number(sides[i].first.norm()));
      identities[i].difference = std::max(identities[i].difference, apart(sides[i].first, sides[i].second));
    }
  }
  for (const Identity& identity : identities) {
    table.rows.push_back({identity.what, identity.length, identity.difference});
    result.assertions.push_back(at_most(identity.what, identity.difference, 1e-12));
  }
  result.tables = {table};
  return result;
}

const RegisteredClaim of_estimators{{.name = "kl-estimators",
                                     .method = "kl-estimators",
                                     .statement = "k1, k3 and rb are unbiased and k2 is not; rb has the least "
                                                  "variance; only k1 in the reward, k2 of the sequence and rb with "
                                                  "its prefix term have the gradient of KL(policy || reference).",
                                     .paper_says =
                                         "arXiv 2504.10637: Rao-Blackwell's estimator is unbiased, its variance never "
                                         "above that of the plain one. Schulman 2020: k1 and k3 are "
                                         "unbiased, k2 is biased.",
                                     .baseline = "k1 in the place of rb",
                                     .run = estimators}};
const RegisteredClaim of_gaussians{
    {.name = "kl-gaussian",
     .method = "kl-estimators",
     .statement =
         "Between two normal laws, k2 and k3 vary less than k1, and k2's bias is small only while they are close.",
     .paper_says = "Schulman 2020: mu = 0.1: deviation over KL 20, 1.42, 1.42 for k1, k2, k3, bias of k2 0.2 %; mu = "
                   "1: 2, 1.73, 1.70, bias 25 %.",
     .baseline = "k1 in the place of k2 and k3",
     .run = gaussian}};
const RegisteredClaim of_gradients{
    {.name = "kl-gradients",
     .method = "kl-estimators",
     .statement = "The gradients of KL in both directions are the expectations that policy gradient and maximum "
                  "likelihood take, and maximising reward under a "
                  "KL penalty is descending KL(policy || pi*).",
     .paper_says = "Textbook identities (score function; Rafailov et al. 2023, appendix A.1 for pi*).",
     .baseline = "the two directions of KL exchanged",
     .run = gradient_identities}};

}  // namespace
}  // namespace kullback
