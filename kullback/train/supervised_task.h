#pragma once

#include "kullback/train/data.h"
#include "kullback/train/limit.h"
#include "kullback/train/loop.h"
#include "kullback/train/reference.h"

namespace kullback {

/// Maximum likelihood of given responses: mean over the step's tokens of -log policy, weighted by row.
class SupervisedTask : public Task {
 public:
  /// `reference`: what limits and distances are measured against.
  SupervisedTask(const Transformer& policy, Reference reference, SupervisedData training, SupervisedData held_out,
                 Limits limits = {});

  int64_t examples() const override { return std::ssize(training_.examples); }
  std::string describe(std::span<const int64_t> examples) const override;
  Figures accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) override;
  std::vector<Figures> evaluate(const std::function<void(int64_t, int64_t)>& progress) override;
  int64_t tokens() const override { return tokens_; }
  void after_step(int64_t, int64_t, Figures& figures) override { limits_.after_step(figures); }
  double settling_factor() const override { return limits_.settling_factor(); }
  Json state() const override { return limits_.state(); }
  void restore(const Json& state) override { limits_.restore(state); }

 private:
  const Transformer& policy_;
  Reference reference_;
  SupervisedData training_, held_out_;
  Limits limits_;
  int64_t tokens_ = 0;
};

}  // namespace kullback
