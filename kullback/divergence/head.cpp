#include "kullback/divergence/head.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/divergence/head_walk.h"

namespace kullback {
namespace {

using at::Tensor;
using detail::HeadGradients;
using detail::HeadInput;
using detail::HeadWalk;
using detail::Leave;
using detail::RowStates;
using detail::Upstream;
using detail::upstream_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The statistics that have a gradient, in a fixed order: calls use(tensor) for each that is defined.
template <class Statistics, class Use>
void for_differentiable(Statistics& s, Use use) {
  for (auto* t : {&s.logps, &s.logsumexp, &s.entropy, &s.expected, &s.top_logps}) {
    if (t->defined()) use(*t);
  }
  for (auto& d : s.divergences) {
    if (d.defined()) use(d);
  }
}

/// What a walk leaves to its backward pass.
struct Walked {
  explicit Walked(HeadWalk w) : walk(std::move(w)) {}

  HeadWalk walk;
  RowStates states;
  HeadStatistics shape;       // the statistics, for their places
  std::vector<Tensor> bases;  // gradients of each statistic at weight 1, [N,D]
  HeadGradients gradients;    // of a loss whose weights were known; handed over to the first backward pass
  std::function<HeadGradients()> room;
  std::optional<Upstream> upstream;  // those weights, from which a second pass makes its gradients anew
};

/// Room for the gradients of the policy's own tensors. Padding gets zeros.
HeadGradients room_for_gradients(const HeadInput& input, bool hidden, bool weight, bool bias) {
  HeadGradients g;
  const Rows& policy = input.policy;
  const int64_t padding = detail::rows_of_head(policy) - input.vocabulary;
  if (hidden) {
    g.hidden = at::empty(policy.hidden.sizes(), policy.hidden.options());
    if (input.from_logits()) g.hidden.narrow(1, input.vocabulary, padding).zero_();
  }
  if (weight) {
    g.weight = at::empty(policy.weight.sizes(), policy.weight.options());
    g.weight.narrow(0, input.vocabulary, padding).zero_();
    if (input.tokens == 0) g.weight.zero_();
  }
  if (bias) g.bias = at::zeros(policy.bias.sizes(), input.type);
  return g;
}

Tensor as_type(const Tensor& gradient, at::ScalarType type) {
  return gradient.defined() ? gradient.to(type) : gradient;
}

bool wants(const Tensor& t) { return t.defined() && t.requires_grad(); }

/// How statistics get their gradient once their upstream is known.
enum class Way {
  keep_bases,   // frozen head: each statistic's own gradient of the hidden states is kept, and scaled then
  leave_basis,  // one divergence alone: the logits' gradient of the last block is kept, and scaled then
  leave_rows,   // the logits of the last block are kept
};

/// One upstream a statistic, each 1 for its own and undefined for the others.
std::vector<Upstream> unit_upstreams(const HeadInput& input) {
  const HeadRequest& request = input.request;
  const Tensor ones = at::ones({input.tokens}, at::kDouble);
  std::vector<Upstream> upstreams;
  const auto add = [&](auto set) {
    HeadStatistics weights;
    weights.divergences.resize(request.divergences.size());
    set(weights);
    upstreams.push_back(upstream_of(weights, request, input.tokens));
  };
  if (request.logps) add([&](HeadStatistics& w) { w.logps = ones; });
  if (request.logsumexp) add([&](HeadStatistics& w) { w.logsumexp = ones; });
  if (request.entropy) add([&](HeadStatistics& w) { w.entropy = ones; });
  if (request.scores.defined()) add([&](HeadStatistics& w) { w.expected = ones; });
  for (size_t i = 0; i < request.divergences.size(); ++i) add([&](HeadStatistics& w) { w.divergences[i] = ones; });
  return upstreams;
}

/// Statistics whose upstream is not known yet: the backward pass makes of it, and of what was kept, the gradients.
struct StatisticsFunction : torch::autograd::Function<StatisticsFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& hidden, const std::optional<Tensor>& weight,
                               const std::optional<Tensor>& bias, std::shared_ptr<Walked> walked, Way way) {
    context->set_materialize_grads(false);
    context->save_for_backward({hidden, weight.value_or(Tensor()), bias.value_or(Tensor())});
    context->saved_data["walked"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(walked));
    HeadWalk& walk = walked->walk;
    const HeadInput& input = walk.input();
    std::vector<Upstream> upstreams;
    std::vector<HeadGradients> gradients;
    if (way == Way::keep_bases || way == Way::leave_basis) upstreams = unit_upstreams(input);
    if (way == Way::keep_bases) {
      for (size_t i = 0; i < upstreams.size(); ++i)
        gradients.push_back({at::empty(hidden.sizes(), at::TensorOptions(input.type)), {}, {}});
    }
    walked->shape = walk.statistics(walked->states, upstreams, gradients);
    for (HeadGradients& g : gradients) walked->bases.push_back(g.hidden);
    variable_list out;
    for_differentiable(walked->shape, [&](Tensor& t) {
      out.push_back(t.to(input.type));
      t = t.detach();  // what is kept here must not be the output itself: output and node would own each other for ever
    });
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &weight = saved[1], &bias = saved[2];
    Walked& walked = *static_cast<Holder*>(context->saved_data["walked"].toCapsule().get())->walked;
    if (!walked.bases.empty()) {
      Tensor sum;
      for (size_t i = 0; i < upstream.size(); ++i) {
        if (!upstream[i].defined()) continue;
        // A weight of 0 takes its token out, even where the statistic has no gradient but NaN.
        const Tensor weights = upstream[i].unsqueeze(1);
        const Tensor part = (walked.bases[i] * weights).masked_fill_(weights == 0, 0);
        sum = sum.defined() ? sum.add_(part) : part;
      }
      return {as_type(sum, hidden.scalar_type()), {}, {}, {}, {}};
    }
    HeadStatistics weights = walked.shape;
    weights.top_ids = Tensor();
    size_t index = 0;
    for_differentiable(weights, [&](Tensor& t) { t = upstream[index++]; });
    const HeadInput& input = walked.walk.input();
    const Upstream up = upstream_of(weights, input.request, input.tokens);
    // Only the tensors there are have an edge of the graph.
    const bool of_weight = weight.defined() && context->needs_input_grad(1);
    const bool of_bias = bias.defined() && context->needs_input_grad(2);
    HeadGradients g = room_for_gradients(input, context->needs_input_grad(0), of_weight, of_bias);
    walked.walk.gradients(walked.states, up, g);
    return {as_type(g.hidden, hidden.scalar_type()),
            g.weight,
            bias.defined() ? as_type(g.bias, bias.scalar_type()) : Tensor(),
            {},
            {}};
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<Walked> w) : walked(std::move(w)) {}
    std::shared_ptr<Walked> walked;
  };
};

/// A loss whose gradient is already made: the backward pass only scales it.
struct LossFunction : torch::autograd::Function<LossFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const std::optional<Tensor>&,
                        const std::optional<Tensor>& bias, const Tensor& loss, std::shared_ptr<Walked> walked) {
    context->saved_data["walked"] = c10::IValue::make_capsule(c10::make_intrusive<StatisticsFunction::Holder>(walked));
    context->saved_data["hidden_type"] = static_cast<int64_t>(hidden.scalar_type());
    if (bias) context->saved_data["bias_type"] = static_cast<int64_t>(bias->scalar_type());
    return loss.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    Walked& walked = *static_cast<StatisticsFunction::Holder*>(context->saved_data["walked"].toCapsule().get())->walked;
    HeadGradients g = std::move(walked.gradients);
    if (!g.hidden.defined() && !g.weight.defined() && !g.bias.defined()) {
      g = walked.room();
      walked.walk.gradients(walked.states, *walked.upstream, g);
    }
    walked.gradients = {};
    const double scale = upstream[0].item<double>();
    for (Tensor* t : {&g.hidden, &g.weight, &g.bias}) {
      if (t->defined() && scale != 1) t->mul_(scale);
    }
    const auto type = [&](const char* key) { return static_cast<at::ScalarType>(context->saved_data[key].toInt()); };
    return {as_type(g.hidden, type("hidden_type")),
            g.weight,
            g.bias.defined() ? as_type(g.bias, type("bias_type")) : Tensor(),
            {},
            {}};
  }
};

/// The statistics in the rows' own precision, from those that a function returned in order.
HeadStatistics in_places(const HeadStatistics& shape, const variable_list& values) {
  HeadStatistics out = shape;
  size_t index = 0;
  for_differentiable(out, [&](Tensor& t) { t = values[index++]; });
  return out;
}

std::optional<Tensor> if_defined(const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

/// The inputs of a walk may not carry gradients of their own: what it makes goes through the functions above.
Rows detached(Rows rows) {
  for (Tensor* t : {&rows.hidden, &rows.weight, &rows.bias}) {
    if (t->defined()) *t = t->detach();
  }
  return rows;
}

bool nothing_wanted(const HeadRequest& r) {
  return r.divergences.empty() && !r.logps && !r.logsumexp && !r.entropy && !r.scores.defined() && r.top_k == 0;
}

bool differentiates(const Rows& policy) {
  return at::GradMode::is_enabled() && (wants(policy.hidden) || wants(policy.weight) || wants(policy.bias));
}

HeadInput checked(const Rows& policy, std::optional<Rows> reference, const HeadRequest& request) {
  if (reference) reference = detached(*reference);
  return HeadInput(detached(policy), std::move(reference), request);
}

/// How the gradient will be made, and the bytes of the bases that are kept for it.
std::pair<Way, int64_t> way_of(const HeadInput& input, bool frozen, const HeadSettings& settings) {
  const HeadRequest& request = input.request;
  const auto others = request.logps + request.logsumexp + request.entropy + request.scores.defined();
  const auto count = others + static_cast<int64_t>(request.divergences.size());
  const int64_t most = input.reference ? 2 : 1;  // as many gradients as a walk holds rows
  const int64_t bytes = count * input.policy.hidden.numel() * static_cast<int64_t>(c10::elementSize(input.type));
  if (frozen && request.top_k == 0 && count <= most && bytes <= settings.memory / 4) return {Way::keep_bases, bytes};
  const bool one_divergence = others == 0 && request.top_k == 0 && request.divergences.size() == 1;
  return {one_divergence ? Way::leave_basis : Way::leave_rows, 0};
}

HeadStatistics statistics(const Rows& policy, std::optional<Rows> reference, const HeadRequest& request,
                          const HeadSettings& settings) {
  HeadInput input = checked(policy, std::move(reference), request);
  const at::ScalarType type = input.type;
  if (!differentiates(policy)) {
    const at::NoGradGuard no_gradient;
    HeadWalk walk(std::move(input), settings);
    if (nothing_wanted(request)) return {};
    RowStates states;
    HeadStatistics s = walk.statistics(states);
    for_differentiable(s, [&](Tensor& t) { t = t.to(type); });
    return s;
  }
  const bool frozen = !wants(policy.weight) && !wants(policy.bias) && !input.from_logits();
  const auto [way, reserved] = way_of(input, frozen, settings);
  const Leave leave = way == Way::keep_bases ? Leave::nothing : way == Way::leave_basis ? Leave::basis : Leave::rows;
  auto walked = std::make_shared<Walked>(HeadWalk(std::move(input), settings, leave, reserved));
  if (nothing_wanted(request)) return {};
  const variable_list values =
      StatisticsFunction::apply(policy.hidden, if_defined(policy.weight), if_defined(policy.bias), walked, way);
  return in_places(walked->shape, values);
}

HeadLoss loss(const Rows& policy, std::optional<Rows> reference, const HeadRequest& request,
              const HeadStatistics& weights, const HeadSettings& settings) {
  HeadInput input = checked(policy, std::move(reference), request);
  const at::ScalarType type = input.type;
  const bool differentiate = differentiates(policy);
  HeadLoss result;
  Tensor total = at::zeros({}, at::kDouble);
  std::shared_ptr<Walked> walked;
  {
    const at::NoGradGuard no_gradient;
    const Upstream upstream = upstream_of(weights, request, input.tokens);
    walked = std::make_shared<Walked>(HeadWalk(std::move(input), settings));
    if (differentiate) {
      walked->upstream = upstream;
      walked->room = [walked = walked.get(), hidden = wants(policy.hidden), weight = wants(policy.weight),
                      bias = wants(policy.bias)] {
        return room_for_gradients(walked->walk.input(), hidden, weight, bias);
      };
      walked->gradients = walked->room();
      result.statistics = walked->walk.statistics(walked->states, {&upstream, 1}, {&walked->gradients, 1});
    } else {
      result.statistics = walked->walk.statistics(walked->states);
    }
    const HeadStatistics& s = result.statistics;
    // A weight of 0 takes its token out, even where the statistic is infinite or NaN.
    const auto add = [&](const Tensor& weight, const Tensor& statistic) {
      if (!weight.defined()) return;
      const Tensor w = weight.detach().to(at::kDouble);
      total += at::where(w == 0, 0.0, w * statistic).sum();
    };
    add(weights.logps, s.logps);
    add(weights.logsumexp, s.logsumexp);
    add(weights.entropy, s.entropy);
    add(weights.expected, s.expected);
    add(weights.top_logps, s.top_logps);
    for (size_t i = 0; i < weights.divergences.size(); ++i) add(weights.divergences[i], s.divergences[i]);
    for_differentiable(result.statistics, [&](Tensor& t) { t = t.to(type); });
    total = total.to(type);
  }
  result.loss = differentiate ? LossFunction::apply(policy.hidden, if_defined(policy.weight), if_defined(policy.bias),
                                                    total, walked)
                              : total;
  return result;
}

}  // namespace

HeadStatistics head_statistics(const Rows& policy, const HeadRequest& request, const HeadSettings& settings) {
  return statistics(policy, std::nullopt, request, settings);
}

HeadStatistics head_statistics(const Rows& policy, const Rows& reference, const HeadRequest& request,
                               const HeadSettings& settings) {
  return statistics(policy, reference, request, settings);
}

Tensor label_logps(const Rows& policy, const Tensor& labels) {
  HeadRequest request;
  request.labels = labels;
  request.logps = true;
  return head_statistics(policy, request).logps;
}

HeadLoss head_loss(const Rows& policy, const HeadRequest& request, const HeadStatistics& weights,
                   const HeadSettings& settings) {
  return loss(policy, std::nullopt, request, weights, settings);
}

HeadLoss head_loss(const Rows& policy, const Rows& reference, const HeadRequest& request, const HeadStatistics& weights,
                   const HeadSettings& settings) {
  return loss(policy, reference, request, weights, settings);
}

}  // namespace kullback
