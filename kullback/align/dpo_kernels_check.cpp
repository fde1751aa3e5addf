// The cases of DPO-Kernels' fixture.
#include <ATen/ATen.h>

#include "kullback/align/dpo_kernels.h"
#include "kullback/align/transport.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/head.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;

DpoKernelsOptions options_of(CheckCase& c) {
  DpoKernelsOptions o;
  Json given = c.options();
  given.erase("min_tail");
  find_method("dpo-kernels").options->assign(&o, given, c.where());
  return o;
}

PairEmbeddings embeddings(CheckCase& c) {
  return {c.tensor("embedding_prompt"), c.tensor("embedding_chosen"), c.tensor("embedding_rejected")};
}

/// The options', or trained ones that are inputs.
KernelParameters parameters(CheckCase& c, const DpoKernelsOptions& o) {
  KernelParameters p = kernel_parameters(o);
  const auto take = [&](const char* name, Tensor& into) {
    if (c.has(name)) into = c.tensor(name);
  };
  take("sigma", p.sigma), take("c", p.c), take("lambdas", p.lambdas), take("alphas", p.alphas);
  take("sigma_inv", p.sigma_inverse), take("local_logits", p.local_logits), take("global_logits", p.global_logits);
  take("top_logits", p.top_logits);
  const PairEmbeddings e = embeddings(c);
  if (!p.sigma_inverse.defined()) p.sigma_inverse = inverse_second_moment(e.prompt, e.chosen, e.rejected, o.ridge);
  return p;
}

/// The divergence of the rows at each place. [B,T]
Tensor row_divergence(CheckCase& c, const DpoKernelsOptions& o) {
  const Tensor policy = c.tensor("policy_logits"), reference = c.tensor("reference_logits");
  const int64_t vocabulary = policy.size(-1);
  const auto flat = [&](const Tensor& logits) { return logits.reshape({-1, vocabulary}); };
  if (o.divergence == DpoKernelsOptions::Kind::wasserstein) {
    const auto law = [&](const Tensor& logits) { return at::softmax(flat(logits), -1); };
    return transport_cost(law(policy), law(reference), c.tensor("cost")).reshape(c.mask("mask").sizes());
  }
  const RowPenalty penalty = row_penalty(o, vocabulary);
  HeadRequest request;
  request.divergences = {penalty.divergence};
  Rows ours, theirs;
  ours.hidden = flat(policy), theirs.hidden = flat(reference);
  return penalty.factor * head_statistics(ours, theirs, request).divergences[0].reshape(c.mask("mask").sizes());
}

CheckOutputs kernel(CheckCase& c) {
  const DpoKernelsOptions o = options_of(c);
  const PairEmbeddings e = embeddings(c);
  const KernelParameters p = parameters(c, o);
  const Tensor chosen = log_kernel(o.kernel, e.prompt, e.chosen, p),
               rejected = log_kernel(o.kernel, e.prompt, e.rejected, p);
  return {{"loss", (chosen - rejected).mean()},
          {"log_kernel_chosen", chosen},
          {"log_kernel_rejected", rejected},
          {"log_ratio", chosen - rejected}};
}

CheckOutputs divergence_case(CheckCase& c) {
  const DpoKernelsOptions o = options_of(c);
  const Tensor values = row_divergence(c, o), each = over_positions(values, c.mask("mask"), o);
  return {{"loss", each.mean()}, {"per_position", values}, {"per_sample", each}};
}

CheckOutputs hybrid(CheckCase& c) {
  const DpoKernelsOptions o = options_of(c);
  const auto side = [&](const std::string& name) {
    Side s{.logps = c.tensor("policy_" + name + "_logps"),
           .reference_logps = {},
           .mask = c.mask(name + "_mask"),
           .divergences = {}};
    if (c.has("reference_" + name + "_logps")) s.reference_logps = c.tensor("reference_" + name + "_logps");
    return s;
  };
  return preference_outputs(dpo_kernels_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}},
                                             embeddings(c), parameters(c, o),
                                             over_positions(row_divergence(c, o), c.mask("mask"), o), o));
}

CheckOutputs select(CheckCase& c) {
  const KernelParameters p = parameters(c, options_of(c));
  const PairEmbeddings e = embeddings(c);
  const KernelSelection s = select_kernel(e.prompt, e.chosen, e.rejected, p);
  const char* const names[] = {"polynomial", "rbf", "spectral", "mahalanobis"};
  return {{"pnd", s.separation},
          {"pnav", s.variance},
          {"tat", s.tightness},
          {"nag", s.gap},
          {"score", s.score},
          {"accuracy", s.accuracy},
          {"sigma_inv", p.sigma_inverse},
          {std::string("kernel=") + names[static_cast<int>(s.kernel)], {}}};
}

CheckOutputs choose_divergence(CheckCase& c) {
  const DivergenceSelection s = select_divergence(c.tensor("policy_logits"), c.tensor("reference_logits"));
  return {
      {"support_overlap", s.overlap}, {"drift", s.drift}, {"kurtosis", s.kurtosis}, {"divergence=" + s.divergence, {}}};
}

CheckOutputs spectrum(CheckCase& c) {
  const Spectrum s = spectrum_exponent(c.tensor("eigenvalues"), c.option<int64_t>("min_tail", 4));
  const auto scalar = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  return {{"ks", scalar(s.distance)},
          {"alpha", scalar(s.exponent)},
          {"xmin", scalar(s.from)},
          {"tail", scalar(static_cast<double>(s.tail))},
          {"weighted_alpha", scalar(s.weighted_exponent)}};
}

const char* const name = "dpo-kernels";
const RegisteredCheck kernel_check{name, "kernel", kernel}, divergence_check{name, "divergence", divergence_case},
    hybrid_check{name, "hybrid", hybrid}, select_check{name, "select", select},
    choose_check{name, "select_divergence", choose_divergence}, spectrum_check{name, "spectrum", spectrum};

}  // namespace
}  // namespace kullback
