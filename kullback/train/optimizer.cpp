#include "kullback/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

const Options<OptimizerOptions>& optimizer_options() {
  using O = OptimizerOptions;
  static const auto options =
      Options<O>()
          .option("optimizer", &O::optimizer,
                  {{"adamw", O::Rule::adamw}, {"sgd", O::Rule::sgd}, {"lion", O::Rule::lion}},
                  "how weights follow the gradient")
          .option("learning-rate", &O::learning_rate, non_negative,
                  "peak learning rate; 0: adamw 1e-4 for adapters and 1e-6 for full weights, lion a third and sgd a "
                  "thousand times of that")
          .option("schedule", &O::schedule,
                  {{"constant", O::Schedule::constant},
                   {"linear", O::Schedule::linear},
                   {"cosine", O::Schedule::cosine},
                   {"wsd", O::Schedule::wsd}},
                  "course of the learning rate after the warm-up; wsd stays at the peak and falls linearly at the end")
          .option("warmup", &O::warmup, fraction, "share of the steps over which the learning rate rises from 0")
          .option("decay", &O::decay, fraction, "wsd: share of the steps over which the learning rate falls at the end")
          .option("weight-decay", &O::weight_decay, non_negative, "decoupled: weights shrink by rate times this a step")
          .option("momentum", &O::momentum, from_to_below(0, 1), "sgd: decay of the running sum of gradients")
          .option("lion-beta1", &O::lion_beta1, from_to_below(0, 1),
                  "lion: weight of the running mean in a step's sign")
          .option("lion-beta2", &O::lion_beta2, from_to_below(0, 1), "lion: decay of the running mean")
          .option("adam-beta1", &O::adam_beta1, from_to_below(0, 1), "decay of the gradient's running mean")
          .option("adam-beta2", &O::adam_beta2, from_to_below(0, 1), "decay of its square's running mean")
          .option("adam-epsilon", &O::adam_epsilon, positive, "added to the root of the second moment")
          .option("max-grad-norm", &O::max_grad_norm, non_negative, "gradients are scaled down to this norm; 0: never",
                  "TRL");
  return options;
}

double default_learning_rate(OptimizerOptions::Rule rule, bool adapters) {
  const double adamw = adapters ? 1e-4 : 1e-6;
  switch (rule) {
    case OptimizerOptions::Rule::adamw: return adamw;
    case OptimizerOptions::Rule::sgd: return 1000 * adamw;
    case OptimizerOptions::Rule::lion: return adamw / 3;
  }
  return adamw;
}

double schedule_factor(const OptimizerOptions& o, int64_t step, int64_t total) {
  const double warmup = std::floor(o.warmup * static_cast<double>(total));
  const auto done = static_cast<double>(step);
  if (done < warmup) return (done + 1) / (warmup + 1);  // the first step is no step of rate 0
  const double rest = std::max(1.0, static_cast<double>(total) - warmup),
               progress = std::min(1.0, (done - warmup) / rest);
  switch (o.schedule) {
    case OptimizerOptions::Schedule::constant: return 1;
    case OptimizerOptions::Schedule::linear: return 1 - progress;
    case OptimizerOptions::Schedule::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case OptimizerOptions::Schedule::wsd: {
      const double falling = std::max(1.0, std::floor(o.decay * static_cast<double>(total)));
      return std::min(1.0, (static_cast<double>(total) - done) / falling);
    }
  }
  return 1;
}

Optimizer::Optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const NamedTensor& p : parameters_) {
    masters_.push_back(at::isReducedFloatingType(p.tensor.scalar_type()) ? p.tensor.detach().to(at::kFloat)
                                                                         : p.tensor.detach());
    first_.push_back(at::zeros_like(masters_.back(), at::MemoryFormat::Contiguous));
    if (options.optimizer == OptimizerOptions::Rule::adamw)
      second_.push_back(at::zeros_like(masters_.back(), at::MemoryFormat::Contiguous));
  }
  std::vector<at::Tensor> weights;
  for (const NamedTensor& p : parameters_) weights.push_back(p.tensor);
  gradients_ = std::make_unique<GradientSum>(std::move(weights));
}

void Optimizer::step(double learning_rate) {
  ++steps_;
  const at::NoGradGuard no_grad;
  switch (options_.optimizer) {
    case OptimizerOptions::Rule::adamw: adamw(learning_rate); break;
    case OptimizerOptions::Rule::sgd: sgd(learning_rate); break;
    case OptimizerOptions::Rule::lion: lion(learning_rate); break;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor weight = parameters_[i].tensor.detach();
    if (weight.scalar_type() != masters_[i].scalar_type()) weight.copy_(masters_[i]);
  }
}

Tensor Optimizer::gradient(size_t i) const {
  const Tensor& own = parameters_[i].tensor.grad();
  return own.defined() ? own.to(masters_[i].scalar_type()) : own;
}

void Optimizer::sgd(double learning_rate) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor own = gradient(i);
    if (!own.defined()) continue;
    first_[i].mul_(options_.momentum).add_(own);
    masters_[i].mul_(1 - learning_rate * options_.weight_decay).add_(first_[i], -learning_rate);
  }
}

void Optimizer::lion(double learning_rate) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor own = gradient(i);
    if (!own.defined()) continue;
    const Tensor direction = at::lerp(own, first_[i], options_.lion_beta1).sign_();
    masters_[i].mul_(1 - learning_rate * options_.weight_decay).add_(direction, -learning_rate);
    first_[i].lerp_(own, 1 - options_.lion_beta2);
  }
}

void Optimizer::adamw(double learning_rate) {
  std::vector<Tensor> weights, gradients, first, second, steps;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor own = gradient(i);
    if (!own.defined()) continue;
    weights.push_back(masters_[i]);
    gradients.push_back(own);
    first.push_back(first_[i]);
    second.push_back(second_[i]);
    steps.push_back(at::scalar_tensor(static_cast<double>(steps_), at::kFloat));
  }
  if (weights.empty()) return;
  at::_fused_adamw_(weights, gradients, first, second, {}, steps, learning_rate, options_.adam_beta1,
                    options_.adam_beta2, options_.weight_decay, options_.adam_epsilon, /*amsgrad=*/false,
                    /*maximize=*/false);
}

void Optimizer::clear_gradients() {
  for (NamedTensor& p : parameters_) p.tensor.mutable_grad() = Tensor();
}

double Optimizer::gradient_norm() const {
  double sum = 0;
  for (const NamedTensor& p : parameters_) {
    if (!p.tensor.grad().defined()) continue;
    const double norm = at::linalg_vector_norm(p.tensor.grad()).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

void Optimizer::scale_gradients(double factor) {
  for (NamedTensor& p : parameters_) {
    if (p.tensor.grad().defined()) p.tensor.mutable_grad().mul_(factor);
  }
}

std::vector<NamedTensor> Optimizer::moments() const {
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    all.push_back({"exp_avg." + parameters_[i].name, first_[i]});
    if (masters_[i].scalar_type() != parameters_[i].tensor.scalar_type())
      all.push_back({"master." + parameters_[i].name, masters_[i]});
    if (!second_.empty()) all.push_back({"exp_avg_sq." + parameters_[i].name, second_[i]});
  }
  return all;
}

}  // namespace kullback
