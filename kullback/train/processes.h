#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/train/figures.h"

namespace kullback {

/// The processes that train one model together, each on its share of every step's rows: data parallel, through c10d's Gloo.
/// They are started by torchrun, mpirun or srun, whose environment says how many there are and where the first one is. Every
/// process has to make the same calls in the same order. Alone, everything here is at once done.
///
/// Where another process has ended, the calls throw an Error that says so.
class Processes {
 public:
  int64_t rank() const { return rank_; }
  int64_t count() const { return count_; }
  bool first() const { return rank_ == 0; }  ///< the one that writes and talks

  /// This process's part of so many rows: [begin, end). Parts lie in the order of the ranks.
  std::pair<int64_t, int64_t> share(int64_t rows) const;
  /// Everyone's text, by rank.
  std::vector<std::string> gather(const std::string& own) const;
  /// Sums over all processes; rows of figures one behind the other in the order of the ranks.
  Figures sum(const Figures& own) const;
  std::vector<Figures> joined(const std::vector<Figures>& own) const;
  bool any(bool own) const;
  void wait_for_all() const;

 private:
  friend const Processes& processes();
  friend class GradientSum;
  Processes();
  int64_t rank_ = 0, count_ = 1;
  struct Group;
  std::shared_ptr<Group> group_;
};

/// Those of this program; joined at the first call. Error where the environment is at odds with itself or the others do not
/// come within five minutes.
const Processes& processes();

/// Sums the gradients of some weights over all processes in buckets, each on its way as soon as the backward pass has filled
/// it. The same calls on all processes:
///
///   GradientSum sum(weights);
///   sum.begin();    // before the last backward pass of a step
///   ...backward...
///   sum.finish();   // all gradients are those of the whole step
class GradientSum {
 public:
  explicit GradientSum(std::vector<at::Tensor> weights, int64_t bucket_bytes = 16 << 20);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  void begin();
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kullback
