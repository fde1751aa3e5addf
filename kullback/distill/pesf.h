#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// PESF-KD: the frozen teacher's logits are corrected by a small adapter on its last hidden state, trained together with the
/// student, so that the targets get as smooth as this student can follow. Rao et al. 2022, arXiv 2205.15308.
struct PesfOptions {
  enum class Objective { kl, mse_prob, swap };
  enum class Adapter { parallel, serial, bottleneck };
  enum class Sign { add, subtract };

  double temperature = 4;
  double gamma = 1;              ///< weight of the student's cross-entropy
  double alpha = 1;              ///< of the divergence
  double delta = 1;              ///< of the adapted teacher's cross-entropy
  Objective kd = Objective::kl;  ///< swap: KL to targets whose likeliest entry and label are exchanged, both ways
  Adapter adapter = Adapter::bottleneck;  ///< the authors: parallel for text, serial for images
  Sign sign = Sign::add;
  int64_t rank = 64;
  double adapter_lr = 1e-5;
  double adapter_dropout = 0.1;  ///< of the bottleneck's numbers, in training
  double beta = 0;               ///< of the squared error between both models' normalised last hidden states
};

/// The adapter's weights: V tokens, the teacher's width H, rank R. w_direct and b_direct are undefined for the bottleneck.
struct PesfAdapter {
  at::Tensor w_direct, b_direct;  ///< [V,H], [V]
  at::Tensor w_down, b_down;      ///< [R,H], or [R,V] for serial; [R]
  at::Tensor w_up, b_up;          ///< [V,R], [V]
};

/// The teacher with its adapter, as rows: the head's own product widened by R columns, so that no [N,V] is made.
/// parallel: W_d h + b_d + W_u relu(W_n h + b_n) + b_u; serial: W_u relu(W_n (W_d h + b_d) + b_n) + b_u; bottleneck:
/// W_u relu(W_n h + b_n) + b_u. A soft-cap is put on the sum. `hidden` [N,H]: what the adapter reads, without gradient; `keep`
/// [N,R] or undefined: what the bottleneck's numbers are multiplied by.
Rows pesf_adapted(const Rows& teacher, const at::Tensor& hidden, const PesfAdapter& adapter, const PesfOptions& options,
                  const at::Tensor& keep = {});

/// The loss, differentiable in the student and in the adapter, and its parts, detached scalars.
struct PesfLoss {
  at::Tensor loss;  ///< gamma ce_student + alpha kd + delta ce_teacher + beta feature
  at::Tensor ce_student, kd, ce_teacher, feature;
  at::Tensor sharpness_student, sharpness_teacher;  ///< ln sum exp z, mean over tokens; after the adapter
  at::Tensor sharpness_student_centred, sharpness_teacher_centred;  ///< the same less the mean logit
};

/// rows: [B T] of the student and of the adapted teacher, which gets a gradient; `plain`: the teacher without its adapter, for
/// `swap`; labels [B,T] int64; mask [B,T] bool. `tokens_in_step`: see token_weights. Error where beta is not 0 and the last
/// hidden states are of different widths or not there.
PesfLoss pesf_loss(const Rows& student, const Rows& adapted, const Rows& plain, const at::Tensor& labels,
                   const at::Tensor& mask, const PesfOptions& options, double tokens_in_step = 0);

}  // namespace kullback
