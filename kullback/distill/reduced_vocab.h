#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/train/distillation.h"

namespace kullback {

/// Distillation into a student whose vocabulary is a fraction of the teacher's: two alignments of rows and columns make a KL and
/// a distance of hidden states between them possible. Kolesnikova et al. 2022, arXiv 2205.02340.
struct ReducedVocabOptions {
  enum class AlignLogits { match, reduce, reduce_map };
  enum class AlignHidden { none, match, reduce };
  enum class HiddenLoss { mse, contrastive };
  enum class Pool { sum, mean, last };
  enum class NegativesFrom { student, teacher };
  enum class LayerMerge { average, last, skip, ids };

  AlignLogits align_logits = AlignLogits::match;
  AlignHidden align_hidden = AlignHidden::none;
  HiddenLoss hidden_loss = HiddenLoss::mse;
  Pool pool = Pool::sum;   ///< of the student's rows that stand for one of the teacher's
  bool sum_probs = true;   ///< reduce_map: a teacher token's logit is the log-sum-exp over its pieces; else their sum
  double temperature = 2;  ///< of both laws; the KL is times its square
  double alpha_kl = 2, alpha_lm = 0.5, alpha_mse = 0, alpha_con = 0;
  int64_t n_negatives = 64;  ///< rows that each is held apart from; -1: all others
  NegativesFrom negatives_from = NegativesFrom::student;
  LayerMerge layer_merge = LayerMerge::average;
  std::vector<int64_t> layer_ids{-1};  ///< ids: those whose mean is taken, 0 the embeddings, -1 the last
};

/// Rows of one model that stand for some of the other's, and the columns that are compared.
struct AlignedRows {
  at::Tensor student;  ///< [N,G] int64 places among the student's rows, -1: none; G is 1 for `match`
  at::Tensor teacher;  ///< [N] int64 places among the teacher's rows
};
/// match: the true places of two masks, in row-major order; as many on each side.
AlignedRows matched_rows(const at::Tensor& student_mask, const at::Tensor& teacher_mask);
/// reduce: groups [B,T',G] of the student's places in its own sequence of `student_length`, -1: unused, at the teacher's
/// counted rows [B,T'].
AlignedRows reduced_rows(const at::Tensor& groups, const at::Tensor& teacher_mask, int64_t student_length);

/// [M,D]: rows of a table at groups of places [N,G], pooled; `mean` divides by the true size of each group.
at::Tensor pooled_rows(const at::Tensor& table, const at::Tensor& groups, ReducedVocabOptions::Pool pool);

/// T^2 mean over aligned rows of KL(teacher || student), both renormalised over tokens that both have: columns [M] each.
/// Differentiable in the student. No row: 0. An Error where pooling is not exact (a soft-cap or a bias under a sum).
at::Tensor shared_columns_kl(const Rows& student, const Rows& teacher, const AlignedRows& rows,
                             const at::Tensor& student_columns, const at::Tensor& teacher_columns,
                             const ReducedVocabOptions& options);

/// The same over the teacher's tokens `mapped` [M]: the student's logit for each is made of those of its pieces, map [Vt,G].
at::Tensor mapped_columns_kl(const Rows& student, const Rows& teacher, const AlignedRows& rows, const at::Tensor& map,
                             const at::Tensor& mapped, const ReducedVocabOptions& options);

/// The hidden states that are compared: one table [n,D] of all layers' [n,D]; `other_layers`: how many the other model has.
at::Tensor merged_layers(const std::vector<at::Tensor>& layers, size_t other_layers,
                         const ReducedVocabOptions& options);

/// mse: mean over rows of sum over d of (s - t)^2; contrastive: of -cos(t_j,s_j) + ln(e^cos(t_j,s_j) + sum over negatives k of
/// e^cos(anchor_j, other_k)). student [N,D], projected; teacher [N,D]; negatives [N,n] rows other than j.
struct HiddenDistance {
  at::Tensor loss;             ///< scalar, differentiable in the student's
  at::Tensor positive_cosine;  ///< [N], detached; contrastive
};
HiddenDistance hidden_distance(const at::Tensor& student, const at::Tensor& teacher, const at::Tensor& negatives,
                               const ReducedVocabOptions& options);

}  // namespace kullback
