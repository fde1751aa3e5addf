#include "kullback/align/dpo_kernels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using O = DpoKernelsOptions;

RowPenalty row_penalty(const O& o, int64_t vocabulary) {
  const auto named = [](std::string_view name) { return divergence(name).from_policy(); };
  switch (o.divergence) {
    case O::Kind::kl: break;
    case O::Kind::js: return {named("js")};
    case O::Kind::renyi:
      if (std::abs(o.order - 1) < 1e-6) break;  // its limit, where the formula cancels
      return {named(fmt::format("renyi:{}", o.order))};
    case O::Kind::bhattacharyya: return {named("bhattacharyya")};
    case O::Kind::hellinger: return {named("hellinger"), 0.5};  // 1 - sum sqrt(pq)
    case O::Kind::wasserstein_line:
      return {named("wasserstein-1"), 1 / static_cast<double>(std::max<int64_t>(vocabulary - 1, 1))};
    case O::Kind::wasserstein: fail("option --divergence: wasserstein needs whole rows and a matrix of costs");
    case O::Kind::f:
      return {named(o.f == O::Generator::reverse_kl ? "reverse-kl"
                    : o.f == O::Generator::chi2     ? "chi2"
                    : o.f == O::Generator::tv       ? "tv"
                                                    : "jeffreys")};
  }
  return {named("kl")};
}

Tensor over_positions(const Tensor& values, const Tensor& mask, const O& o) {
  if (o.positions == O::Positions::mean) return sequence_sum(values, mask) / token_counts(mask, values).clamp_min(1);
  const Tensor so_far = mask.cumsum(-1);
  return sequence_sum(values, mask & (so_far == mask.sum(-1, true)));  // the last counted one
}

KernelParameters kernel_parameters(const O& o) {
  const bool mixture = o.kernel == Kernel::hmk;
  const auto list = [&](const std::vector<double>& given, std::vector<double> of_mixture) {
    return at::tensor(!given.empty() ? given : mixture ? of_mixture : std::vector<double>{1}, at::kDouble);
  };
  const Tensor even = at::zeros({2}, at::kDouble);
  return {.sigma = at::scalar_tensor(o.sigma, at::kDouble),
          .c = at::scalar_tensor(o.c, at::kDouble),
          .degree = o.degree,
          .lambdas = list(o.lambdas, {1, 0.5}),
          .alphas = list(o.alphas, {1, 0.1}),
          .sigma_inverse = {},
          .local_logits = even,
          .global_logits = even,
          .top_logits = even};
}

PreferenceLoss dpo_kernels_loss(const PreferenceBatch& batch, const PairEmbeddings& e, const KernelParameters& p,
                                const Tensor& penalty, const O& o) {
  const auto reward = [&](Side side) {
    if (o.margin == O::Margin::policy) side.reference_logps = Tensor();
    return score(side).log_ratio();
  };
  const Tensor w = reward(batch.chosen), l = reward(batch.rejected), probability = w - l;  // [B]
  Tensor kernel = at::zeros_like(probability);
  if (o.gamma > 0) {
    kernel = log_kernel(o.kernel, e.prompt, e.chosen, p) - log_kernel(o.kernel, e.prompt, e.rejected, p);
  }
  const Tensor z = o.kappa * (probability + o.gamma * kernel);
  const Tensor preference = o.link == O::Link::linear ? -z : logistic_loss(z);
  PreferenceLoss loss =
      pairwise_loss(batch, o.alpha > 0 ? preference + o.alpha * penalty : preference, o.kappa * w, o.kappa * l, z);
  loss.parts.insert({{"prob_term", probability.detach()}, {"kernel_term", kernel.detach()}, {"hybrid", z.detach()}});
  if (penalty.defined()) loss.parts["divergence"] = penalty.detach();
  return loss;
}

namespace {

/// The state that predicts the first token stands for the prompt, the mean over a response's tokens for the response.
PairEmbeddings embeddings(const PreferenceBatch& batch, const O& o) {
  const auto states = [&](const Side& s) {
    return o.embedding == O::Embedding::policy ? s.hidden : s.reference_hidden;
  };
  const auto mean = [&](const Side& s) {
    const Tensor sum = masked(states(s), s.mask.unsqueeze(-1)).sum(1);
    return (sum / token_counts(s.mask, sum).clamp_min(1).unsqueeze(-1)).to(at::kDouble);
  };
  const Tensor first = batch.chosen.mask.to(at::kLong).argmax(-1).reshape({-1, 1, 1});
  const Tensor chosen = states(batch.chosen);
  return {.prompt = chosen.gather(1, first.expand({-1, 1, chosen.size(2)})).squeeze(1).to(at::kDouble),
          .chosen = mean(batch.chosen),
          .rejected = mean(batch.rejected)};
}

}  // namespace

PreferenceLoss dpo_kernels_loss(const PreferenceBatch& batch, const O& o) {
  PairEmbeddings e;
  KernelParameters p = kernel_parameters(o);
  if (o.gamma > 0) {
    e = embeddings(batch, o);
    if (o.kernel == Kernel::mahalanobis || o.kernel == Kernel::hmk)
      p.sigma_inverse = inverse_second_moment(e.prompt.detach(), e.chosen.detach(), e.rejected.detach(), o.ridge);
  }
  Tensor penalty;
  if (o.alpha > 0) {
    penalty =
        row_penalty(o, batch.vocabulary).factor * over_positions(batch.chosen.divergences.at(0), batch.chosen.mask, o);
  }
  return dpo_kernels_loss(batch, e, p, penalty, o);
}

namespace {

const NumberRange weights = non_negative;

const Registered dpo_kernels{
    preference_method<O>("dpo-kernels")
        .summary(
            "A preference loss with a kernel of embeddings in its margin and a choice of divergences as its penalty")
        .formula("loss = mean over pairs of link(z) + alpha * D(policy || reference) on the chosen response\n"
                 "z    = kappa * (log policy(chosen) - log policy(rejected) [- the reference's] + gamma * k)\n"
                 "k    = log K(prompt, chosen) - log K(prompt, rejected), of embeddings\n"
                 "link: linear -z (as released, unbounded below), logsigmoid -log sigmoid(z)")
        .when(
            "To try kernels and divergences in one place. Take --link logsigmoid --margin reference --positions mean "
            "in earnest: as released the loss is unbounded and leaves the data. With frozen embeddings the kernel only "
            "re-weights pairs. The mixture hmk keeps equal weights here. The prompt's embedding is the hidden state "
            "that predicts "
            "the first token, a response's the mean of its own.")
        .paper(
            {"DPO Kernels: A Semantically-Aware, Kernel-Enhanced, and Divergence-Rich Paradigm for Direct Preference "
             "Optimization",
             "2501.03271", "ACL Findings 2025"})
        .option("kernel", &O::kernel,
                {{"polynomial", Kernel::polynomial},
                 {"rbf", Kernel::rbf},
                 {"spectral", Kernel::spectral},
                 {"mahalanobis", Kernel::mahalanobis},
                 {"hmk", Kernel::hmk}},
                "of embeddings; hmk mixes the other four")
        .option("sigma", &O::sigma, positive, "rbf: width", "authors' code")
        .option("c", &O::c, positive, "polynomial: offset", "authors' code")
        .option("degree", &O::degree, positive, "polynomial: degree", "authors' code")
        .option("lambdas", &O::lambdas, positive, "spectral: weights; empty: 1 (hmk: 1, 0.5)", "authors' code")
        .option("alphas", &O::alphas, non_negative, "spectral: rates; empty: 1 (hmk: 1, 0.1)", "authors' code")
        .option("divergence", &O::divergence,
                {{"kl", O::Kind::kl},
                 {"js", O::Kind::js},
                 {"renyi", O::Kind::renyi},
                 {"bhattacharyya", O::Kind::bhattacharyya},
                 {"hellinger", O::Kind::hellinger},
                 {"wasserstein", O::Kind::wasserstein},
                 {"wasserstein_line", O::Kind::wasserstein_line},
                 {"f", O::Kind::f}},
                "the penalty; wasserstein needs a matrix of costs and is refused in training")
        .option("order", &O::order, positive, "renyi: order; 1 is KL", "authors' code")
        .option("f", &O::f,
                {{"reverse_kl", O::Generator::reverse_kl},
                 {"chi2", O::Generator::chi2},
                 {"tv", O::Generator::tv},
                 {"jeffreys", O::Generator::jeffreys}},
                "which f-divergence `f` is")
        .option("kappa", &O::kappa, weights, "scale of the margin", "authors' code")
        .option("gamma", &O::gamma, weights, "weight of the kernel in the margin", "authors' code")
        .option("alpha", &O::alpha, weights, "weight of the divergence", "authors' code")
        .option("link", &O::link, {{"linear", O::Link::linear}, {"logsigmoid", O::Link::logsigmoid}},
                "the loss of a margin", "authors' code")
        .option("margin", &O::margin, {{"policy", O::Margin::policy}, {"reference", O::Margin::reference}},
                "log-probabilities, or log-ratios to the reference", "authors' code")
        .option("positions", &O::positions, {{"last", O::Positions::last}, {"mean", O::Positions::mean}},
                "the divergence at the response's last token, or its mean", "authors' code")
        .option("embedding", &O::embedding, {{"frozen", O::Embedding::frozen}, {"policy", O::Embedding::policy}},
                "hidden states of the reference, or of the policy with their gradient")
        .option("ridge", &O::ridge, positive, "mahalanobis: added to the second moment")
        .needs([](const O& o) {
          Needs needs{.reference_logps = o.margin == O::Margin::reference, .hidden = o.gamma > 0};
          if (o.alpha > 0) needs.divergences = {row_penalty(o, 2).divergence};
          return needs;
        })
        .validate([](const O& o) {
          if (o.alpha > 0) row_penalty(o, 2);
          const KernelParameters p = kernel_parameters(o);
          if (p.lambdas.size(0) != p.alphas.size(0)) fail("option --lambdas: as many as --alphas are needed");
        })
        .loss([](const PreferenceBatch& batch, const O& o) { return dpo_kernels_loss(batch, o); })};

}  // namespace
}  // namespace kullback
