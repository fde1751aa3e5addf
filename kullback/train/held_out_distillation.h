#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"
#include "kullback/report/run_report.h"
#include "kullback/train/figures.h"
#include "kullback/train/run.h"

namespace kullback {

/// What the held-out rows say of how near a student is to its teacher, beyond means over all tokens.
struct HeldOutDistillation {
  static constexpr int64_t bins = 10;  ///< of confidence
  /// Of each row (response): by bin of confidence, the sums of confidence and of right answers, and the tokens.
  struct Calibration {
    std::vector<double> confidence = std::vector<double>(bins), right = std::vector<double>(bins),
                        tokens = std::vector<double>(bins);
  };
  std::vector<Calibration> calibration = {};
  /// Of each row: figures by joined place, "forward_kl 3".
  std::vector<Figures> by_place = {};
  double student_seconds = 0, teacher_seconds = 0;  ///< spent in forward passes over the same tokens

  /// Expected calibration error with 10 equal bins of confidence (Guo et al. 2017, arXiv 1706.04599), and its interval over rows.
  Interval calibration_error(uint64_t seed) const;
  std::vector<Plot> plots(uint64_t seed) const;
};

/// Adds a row's figures. student, teacher: rows of one response's counted tokens; the teacher's may lack a head (`hidden`
/// undefined: another tokenizer), or be truncated ones of a record, for which the reverse KL is infinite and left out.
Figures held_out_figures(const Rows& student, const Rows& teacher, const at::Tensor& labels, bool truncated,
                         HeldOutDistillation& details);

/// How these figures are shown. `truncated`: the teacher's rows are.
std::vector<MeasureText> distillation_measures(bool truncated);

/// Adds what follows from the figures: perplexity = exp(loss).
void add_perplexity(std::map<std::string, Interval>& figures);

}  // namespace kullback
