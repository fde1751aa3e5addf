#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/base/options.h"
#include "kullback/lm/transformer.h"
#include "kullback/train/processes.h"

namespace kullback {

/// How the learning rate moves and how weights follow the gradient.
struct OptimizerOptions {
  enum class Rule { adamw, sgd, lion };
  enum class Schedule { constant, linear, cosine, wsd };
  Rule optimizer = Rule::adamw;
  double learning_rate = 0;  ///< 0: chosen by what is trained (1e-4 for adapters, 1e-6 for full weights)
  Schedule schedule = Schedule::cosine;
  double warmup = 0.1;  ///< share of the steps over which the rate rises linearly from 0
  double decay = 0.2;   ///< wsd: share of the steps over which it falls at the end
  double weight_decay = 0;
  double momentum = 0.9;                       ///< sgd
  double lion_beta1 = 0.9, lion_beta2 = 0.99;  ///< lion: of the step and of the running mean
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1;  ///< gradients are scaled down to this norm; 0: never
};
const Options<OptimizerOptions>& optimizer_options();

/// What is tried first where no learning rate is given.
double default_learning_rate(OptimizerOptions::Rule rule, bool adapters);

/// The learning rate of step `step` (from 0) of `total`, as a share of the peak: warm-up, then the schedule's course to 0.
double schedule_factor(const OptimizerOptions& options, int64_t step, int64_t total);

/// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) by LibTorch's fused kernel, SGD with momentum, or Lion (Chen et al.
/// 2023, arXiv 2302.06675); weight decay is decoupled in all three. Of weights in bfloat16 or float16 it keeps a float32 copy,
/// its master: steps go to the master and are rounded once, so that steps too small for the short type still add up.
class Optimizer {
 public:
  Optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options);

  /// One step along the gradients that the parameters hold; parameters without one stay.
  void step(double learning_rate);
  void clear_gradients();
  /// Euclidean norm of all gradients together.
  double gradient_norm() const;
  void scale_gradients(double factor);
  /// What sums them over processes that train together.
  GradientSum& gradients() { return *gradients_; }

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// The running means of gradients under "exp_avg." and, of AdamW, of their squares under "exp_avg_sq." and each parameter's
  /// name; masters under "master.".
  std::vector<NamedTensor> moments() const;
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  void adamw(double learning_rate);
  void sgd(double learning_rate);
  void lion(double learning_rate);

  std::vector<NamedTensor> parameters_;
  at::Tensor gradient(size_t i) const;  // in the master's type; undefined where there is none
  std::vector<at::Tensor> masters_;     // of a weight in a long type: the weight itself
  std::vector<at::Tensor> first_, second_;
  OptimizerOptions options_;
  int64_t steps_ = 0;
  std::unique_ptr<GradientSum> gradients_;
};

}  // namespace kullback
