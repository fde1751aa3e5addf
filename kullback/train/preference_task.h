#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kullback/base/registry.h"
#include "kullback/train/limit.h"
#include "kullback/train/loop.h"
#include "kullback/train/recipe.h"
#include "kullback/train/reference.h"
#include "kullback/train/response_batch.h"

namespace kullback {

/// Training a policy on preference pairs by any preference recipe: gives the recipe what it needs and nothing more.
/// The reference's log-probabilities of training pairs are computed with each batch, or once before training: prepare_reference.
class PreferenceTask : public Task {
 public:
  /// `options`: of the method, must outlive the task, as must the models. `prefix`: what stands in for the prompt where a
  /// recipe asks for the reference's likelihood without it.
  PreferenceTask(const Transformer& policy, Reference reference, const Method& method, const void* options,
                 PreferenceData training, PreferenceData held_out, std::vector<int32_t> prefix, Limits limits = {});

  int64_t examples() const override { return static_cast<int64_t>(training_.pairs.size()); }
  std::string describe(std::span<const int64_t> examples) const override;
  Figures accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) override;
  std::vector<Figures> evaluate(const std::function<void(int64_t, int64_t)>& progress) override;
  int64_t tokens() const override { return tokens_; }
  const std::vector<PreferencePair>& held_out() const { return held_out_.pairs; }
  /// The method's loss on one held-out pair alone, differentiable in the policy's weights.
  at::Tensor held_out_loss(size_t pair);
  /// Moves the limits' multipliers, and the reference that losses are measured against where the method has one that follows
  /// the policy. The exact divergences that are logged stay those from the reference as it was.
  void after_step(int64_t step, int64_t steps, Figures& figures) override;
  double settling_factor() const override { return limits_.settling_factor(); }
  std::vector<NamedTensor> kept() override;  ///< the moved reference
  Json state() const override { return limits_.state(); }
  void restore(const Json& state) override { limits_.restore(state); }

  /// Takes the reference's log-probabilities of all pairs from a file in this folder, or computes them now and writes it: after
  /// that nothing but `measure` and divergences asks the reference again. The file is named after all that decides them, the
  /// reference's weights and the tokens. Does nothing where the method needs none, or has a reference that moves.
  void prepare_reference(const std::filesystem::path& folder, const std::function<void(int64_t, int64_t)>& progress);

 private:
  struct Cached {
    at::Tensor chosen, rejected;  // [n] each; undefined until computed
  };
  struct Scored;
  /// `visit` names the draws of random numbers.
  Scored scored(const std::vector<const PreferencePair*>& pairs, const std::vector<Cached*>& caches, bool measure,
                const std::string& visit) const;
  Reference loss_reference() const { return moving_ ? Reference{&*moving_, AdapterUse::on} : reference_; }
  Side mismatched(const std::vector<const Sequence*>& sequences) const;
  std::string reference_key() const;
  void fill_reference(const std::vector<const PreferencePair*>& pairs, const std::vector<Cached*>& caches) const;

  const Transformer& policy_;
  Reference reference_;
  std::optional<Transformer> moving_;  // a copy of it that follows the policy
  PreferenceRecipe recipe_;
  const void* options_;
  Needs needs_;
  PreferenceData training_, held_out_;
  std::vector<int32_t> prefix_;
  std::vector<Cached> training_cache_, held_out_cache_;
  Limits limits_;
  int64_t tokens_ = 0;
};

}  // namespace kullback
