#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// One side, chosen or rejected, of a batch of preference pairs: what the streaming head computed at each response token.
/// Places where `mask` is false hold anything and never count.
struct Side {
  at::Tensor logps;            ///< [B,T] log-probability of each token under the policy, nats
  at::Tensor reference_logps;  ///< [B,T] under the reference; undefined if the method asked for none
  at::Tensor mask;             ///< [B,T] bool: true at the tokens of the response that count
  std::vector<at::Tensor>
      divergences;  ///< [B,T] each, policy rows against reference rows, in the order of Needs::divergences
  std::vector<at::Tensor> uniforms = {};  ///< [B,T] each, in [0,1): Needs::uniforms of them
  at::Tensor hidden = {};                 ///< [B,T,D] of the policy, at the row that predicts each token: Needs::hidden
  at::Tensor reference_hidden = {};       ///< [B,T,D] of the reference
};

/// A batch of preference pairs as a loss sees it.
struct PreferenceBatch {
  Side chosen, rejected;
  at::Tensor weight;  ///< [B] weight of each pair; undefined: all 1
  /// [S] int64: which pair each row of `chosen` belongs to, where pairs have any number of them; undefined: one each.
  at::Tensor chosen_pair = {};
  /// [B] bool: which pairs have this side; undefined: all. Only where Needs::unpaired.
  at::Tensor chosen_present = {}, rejected_present = {};
  /// Responses to other prompts than their own, a row for each of chosen, then rejected, that is present: Needs::mismatched.
  Side mismatched = {};
  int64_t vocabulary = 0;  ///< tokens of a row
  /// What means are taken over. A step may be cut into several batches (accumulation, several machines): these count the
  /// whole step, so that the sum of the batches' losses is exactly the loss of the big batch. 0: this batch is the step.
  double pairs_in_step = 0;
  double chosen_tokens_in_step = 0, rejected_tokens_in_step = 0;
};

/// What a preference loss gives back.
struct PreferenceLoss {
  at::Tensor value;                             ///< scalar that is minimised: mean over the pairs of the step
  at::Tensor losses;                            ///< [B] each pair's loss
  at::Tensor chosen_rewards, rejected_rewards;  ///< [B] implicit rewards, detached
  std::map<std::string, at::Tensor> parts;      ///< anything else worth logging or checking, detached, by name
};

/// [B,T] -> [B,T]: values where the mask holds, 0 elsewhere, whatever stands there (NaN and infinities too).
at::Tensor masked(const at::Tensor& values, const at::Tensor& mask);
/// [B,T] -> [B]: sum over the counted tokens; 0 for an empty response.
at::Tensor sequence_sum(const at::Tensor& values, const at::Tensor& mask);
/// [B,T] bool -> [B]: number of counted tokens, in the type of `like`.
at::Tensor token_counts(const at::Tensor& mask, const at::Tensor& like);

/// The side without tokens that both models forbid (-inf under both): there is no ratio at such a token, and it says
/// nothing about which response is preferred. A token that only the policy forbids stays and makes the loss infinite.
Side without_forbidden_tokens(Side side);

/// Mean over the pairs of the step of `losses` [B] (times their weights).
at::Tensor mean_over_pairs(const at::Tensor& losses, const PreferenceBatch& batch);

}  // namespace kullback
