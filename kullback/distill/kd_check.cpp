// How the cases of kd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/kd.h"
#include "kullback/distill/sequence_level.h"
#include "kullback/train/check.h"
#include "kullback/train/similarity.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs loss_case(CheckCase& c) {
  const Tensor labels = c.has("labels") ? c.tensor("labels") : Tensor();
  const KdLoss loss = kd_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), labels, c.mask("mask"),
                              fixture_options<KdOptions>(c, "kd"));
  CheckOutputs out{{"loss", loss.loss}, {"kd_loss", loss.kd_loss}, {"per_token", loss.per_token}};
  if (loss.ce_loss.defined()) out["ce_loss"] = loss.ce_loss;
  return out;
}

/// Cross-entropy of the student on one response, by kd_loss itself.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& mask) {
  Rows rows;
  rows.hidden = logits;
  KdOptions o;
  o.kd_ratio = 0;
  return kd_loss(rows, rows, labels, mask, o).loss;
}

CheckOutputs beam_search_case(CheckCase& c) {
  const Tensor teacher = at::log_softmax(c.tensor("teacher_table").to(at::kDouble), 1).contiguous();
  const int64_t vocabulary = teacher.size(1), start = c.option<int64_t>("start", 0),
                length = c.option<int64_t>("max_length", 1);
  const auto previous = [&](std::span<const int64_t> tokens) { return tokens.empty() ? start : tokens.back(); };
  const auto next = [&](std::span<const int64_t> tokens) {
    const double* row = teacher.const_data_ptr<double>() + previous(tokens) * vocabulary;
    return std::vector<double>(row, row + vocabulary);
  };
  const auto beams = beam_search(next, c.option<int64_t>("beams", 1), length, c.option<int64_t>("eos", 0));
  const int64_t count = static_cast<int64_t>(beams.size());
  Tensor sequences = at::zeros({count, length}, at::kLong), mask = at::zeros({count, length}, at::kLong),
         logps = at::zeros({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    logps[i] = beams[i].logp;
    for (size_t t = 0; t < beams[i].tokens.size(); ++t) {
      sequences[i][static_cast<int64_t>(t)] = beams[i].tokens[t];
      mask[i][static_cast<int64_t>(t)] = 1;
    }
  }
  // The student trains on the best hypothesis; its row at each token is that of the token before.
  const std::vector<int64_t>& best = beams.front().tokens;
  std::vector<int64_t> before{start};
  before.insert(before.end(), best.begin(), best.end() - 1);
  const Tensor labels = at::tensor(best, at::kLong).unsqueeze(0);
  const Tensor logits = c.tensor("student_table").index_select(0, at::tensor(before, at::kLong));
  const Tensor similarity = c.tensor("similarity").to(at::kDouble).contiguous();
  const size_t choice = most_similar({similarity.const_data_ptr<double>(), static_cast<size_t>(similarity.numel())});
  return {{"sequences", sequences},
          {"sequence_mask", mask},
          {"logps", logps},
          {"loss", cross_entropy(logits, labels, at::ones_like(labels, at::kBool))},
          {"interpolation_choice", at::scalar_tensor(static_cast<double>(choice), at::kDouble)}};
}

/// Log-probabilities of all sequences [V^T] of a model given as one row of logits a prefix, shorter prefixes first.
Tensor sequence_logps(const Tensor& prefix_logits, int64_t vocabulary, int64_t length) {
  Tensor logps = at::zeros({1}, prefix_logits.options());
  int64_t first = 0, prefixes = 1;
  for (int64_t t = 0; t < length; ++t) {
    const Tensor rows = at::log_softmax(prefix_logits.narrow(0, first, prefixes), 1);  // [V^t,V]
    logps = (logps.unsqueeze(1) + rows).reshape(-1);
    first += prefixes;
    prefixes *= vocabulary;
  }
  return logps;
}

/// Sequence-level distillation with sampled teacher responses and infinite data: the teacher's expectation of the student's
/// cross-entropy, which is the sequences' forward KL plus the teacher's entropy.
CheckOutputs exact_world_case(CheckCase& c) {
  const int64_t vocabulary = c.option<int64_t>("vocab", 2), length = c.option<int64_t>("length", 1);
  const Tensor teacher = sequence_logps(c.tensor("teacher_prefix_logits").to(at::kDouble), vocabulary, length);
  const Tensor student = sequence_logps(c.tensor("student_prefix_logits"), vocabulary, length);
  const Tensor p = teacher.exp();
  Rows p_rows, q_rows;
  p_rows.hidden = teacher.unsqueeze(0);
  q_rows.hidden = student.detach().unsqueeze(0);
  HeadRequest request;
  request.divergences = {divergence("kl").from_policy()};
  request.entropy = true;
  const HeadStatistics s = head_statistics(p_rows, q_rows, request);
  return {{"teacher_sequence_logps", teacher},
          {"student_sequence_logps", student},
          {"sequence_forward_kl", s.divergences[0]},
          {"teacher_sequence_entropy", s.entropy},
          {"loss", -(p * student).sum()}};
}

const RegisteredCheck loss_check{"kd", "loss", loss_case};
const RegisteredCheck beam_check{"kd", "beam_search", beam_search_case};
const RegisteredCheck world_check{"kd", "exact_world_seqkd", exact_world_case};

}  // namespace
}  // namespace kullback
