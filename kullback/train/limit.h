#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/base/options.h"
#include "kullback/divergence/divergence.h"
#include "kullback/train/figures.h"

namespace kullback {

/// A bound on how far the policy may be from the reference, or a price for it. Written "kl<=0.05", "reverse-kl/sequence<=3",
/// or with a fixed weight "kl*0.1".
struct Limit {
  RowDivergence divergence;   ///< D(policy || reference) of next-token laws, exact
  bool per_sequence = false;  ///< summed over a response's tokens, mean over responses; else mean over tokens
  double bound = 0;           ///< nats (of the divergence's own unit); with `fixed`, the weight
  bool fixed = false;         ///< a term of fixed weight instead of a bound
  std::string name = {};      ///< "kl" or "kl/sequence", as in metrics
};

/// Error that names --limit where the text is none of these.
Limit parse_limit(const std::string& text);

struct LimitOptions {
  std::vector<std::string> limit = {};
  double dual_rate = 0.1;
  double damping = 2;
};
const Options<LimitOptions>& limit_options();

/// Limits that hold for a run. Each adds (multiplier / bound) * (divergence - bound) to the loss, and its multiplier follows
/// the violation e = ln(divergence / bound) by dual ascent on its logarithm: multiplier = exp(level + damping e), where the
/// level rises and falls by rate e a step. The damping answers at once, as an augmented Lagrangian does, where the level
/// alone would swing about the bound; on the logarithm one rate serves losses and divergences of any scale.
///
/// What is measured on the batches of a step is held to the bound times the ratio of training to held-out divergence, so
/// that it is the held-out divergence that ends at the bound.
class Limits {
 public:
  Limits() = default;
  explicit Limits(const LimitOptions& options);

  bool empty() const { return limits_.empty(); }
  const std::vector<Limit>& list() const { return limits_; }
  std::vector<RowDivergence> divergences() const;

  /// What the loss of a batch gets: a number for each limit that multiplies the batch's sum of divergences. `tokens` and
  /// `sequences`: counted in the whole step.
  std::vector<double> weights(double tokens, double sequences) const;

  /// Moves the multipliers after a step. `figures`: the step's, in which measured divergences stand under `limit/NAME`; the
  /// multipliers are added to them.
  void after_step(Figures& figures);

  /// The same figures over the held-out rows.
  void observe_held_out(const Figures& figures);

  /// By what the whole update, policy less reference, should be scaled so that the last held-out divergences end at their
  /// bounds: below 1 where one is exceeded, above 1 where limits bound the run and it ended short of all; 1 within 2 %.
  double settling_factor() const;

  Json state() const;
  void restore(const Json& state);

 private:
  struct Dual {
    double level = std::log(0.1), violation = 0;
    double measured = 0;  // running mean on training batches
    double ratio = 1;     // held-out over training divergence
    int64_t steps = 0;
    double held_out = 0;  // the last one
    bool bound = false;   // the divergence has come near its bound
  };
  double multiplier(size_t i) const;

  std::vector<Limit> limits_;
  std::vector<Dual> duals_;  // a limit each
  double rate_ = 0, damping_ = 0;
};

/// Adds the sum of divergences to a step's figures as `limit/NAME`: [M] of counted tokens, `sequences` of them.
void add_limit_figures(const Limits& limits, const std::vector<at::Tensor>& divergences, double sequences,
                       Figures& figures);

}  // namespace kullback
