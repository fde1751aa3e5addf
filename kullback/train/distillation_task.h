#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kullback/base/registry.h"
#include "kullback/rewards/reward.h"
#include "kullback/train/distillation.h"
#include "kullback/train/held_out_distillation.h"
#include "kullback/train/limit.h"
#include "kullback/train/loop.h"
#include "kullback/train/reference.h"
#include "kullback/train/teacher.h"

namespace kullback {

/// What a distillation task is told besides its models, data and method.
struct DistillationSetup {
  std::vector<int32_t> stop_ids = {};  ///< that end a response
  int64_t response_tokens = 128;       ///< of a drawn response at most, where the method does not say
  uint64_t seed = 0;
  double learning_rate = 1;  ///< the student's peak: the method's own tensors follow its course
  int64_t batch_size = 4;    ///< of each_batch
  int64_t vocabulary = 0;    ///< real tokens of both models; where the teacher has another tokenizer, of the student's
  const Tokenizer* student_tokenizer = nullptr;
  /// Where the teacher has another tokenizer: a row's prompt with this response, in the teacher's tokens.
  std::function<Sequence(const Example& example, const std::string& response)> for_teacher = {};
  const Transformer* other_model = nullptr;  ///< Needs::other_model
  bool distances = false;                    ///< evaluations also say how far the student is from the reference
  /// Other names for figures that speak of a teacher, where the model that holds the student is none; to an empty one: left out.
  std::map<std::string, std::string> names = {};
};

/// Training a student by any distillation recipe: gives it what it needs and nothing more. The teacher runs without gradient;
/// responses of a step are drawn before its batches, so that accumulated batches make the step of the big batch.
class DistillationTask : public Task, private DistillationRun {
 public:
  /// `options`: of the method; must outlive the task, as must the models. `reference`: what limits are measured against, the
  /// student as it was; may be empty where there are none. `text`: plain texts, may be empty.
  DistillationTask(const Transformer& student, const Teacher& teacher, Reference reference, const Method& method,
                   const void* options, SupervisedData training, SupervisedData held_out, SupervisedData text,
                   DistillationSetup setup, Limits limits = {});
  ~DistillationTask() override;

  /// What is made once before the run: responses of the teacher, or of the student as it is, to the rows that the run will see.
  /// They are kept in FOLDER/responses.jsonl, where a resumed run finds them. An empty folder keeps nothing.
  void prepare(const std::filesystem::path& folder, std::span<const int64_t> examples, int64_t steps,
               const std::function<void(int64_t done, int64_t total)>& progress);

  int64_t examples() const override { return std::ssize(training_.examples); }
  std::string describe(std::span<const int64_t> examples) const override;
  void before_step(int64_t step, int64_t steps, std::span<const int64_t> examples) override;
  Figures accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) override;
  std::vector<Figures> evaluate(const std::function<void(int64_t, int64_t)>& progress) override;
  int64_t tokens() const override { return tokens_; }
  void after_step(int64_t step, int64_t steps, Figures& figures) override;
  std::map<std::string, double> timings() const override { return {{"sampling_share", sampling_share_}}; }
  double settling_factor() const override { return limits_.settling_factor(); }
  Json state() const override;
  void restore(const Json& state) override;
  std::vector<NamedTensor> kept() override;

  /// Of the newest evaluation.
  const HeldOutDistillation& held_out() const { return held_out_; }
  double sampling_seconds() const { return sampling_seconds_; }
  double step_seconds() const { return step_seconds_; }

 private:
  struct Side {
    std::vector<Response> responses;
    double tokens = 0, sequences = 0;  // of all of them, weighted
  };
  enum class Rowing { training, still };  // still: without gradient
  using Laid = std::vector<Sequence>;

  const Transformer& student() const override { return student_; }
  const Transformer& teacher() const override { return teacher_.model().transformer; }
  std::vector<int32_t> prompt(int64_t example) const override;
  const std::vector<int32_t>& stop_ids() const override { return setup_.stop_ids; }
  const Tokenizer* student_tokenizer() const override { return setup_.student_tokenizer; }
  const Tokenizer* teacher_tokenizer() const override;
  std::vector<Response> data(std::span<const int64_t> examples) const override;
  std::vector<Response> draw(ResponseSource source, std::span<const int64_t> examples, const std::string& name,
                             const std::vector<std::vector<int32_t>>& beginnings) override;
  std::vector<Response> stored(ResponseSource source, std::span<const int64_t> examples) override;
  std::vector<double> scores(std::span<const Response> responses) const override;
  void each_batch(std::span<const Response> responses, const std::function<void(const DistillationBatch&)>& f) override;

  DistillationStep context(std::span<const int64_t> examples);
  std::vector<Response> chosen_responses(DistillationStep& step);
  std::vector<Response> own_responses(std::span<const int64_t> examples);
  std::vector<Response> drawn(ResponseSource source, std::span<const int64_t> examples, const std::string& name,
                              const std::vector<std::vector<int32_t>>& beginnings, std::vector<uint64_t> streams);
  Response beam_response(int64_t example) const;
  Side side_of(std::vector<Response> responses) const;
  Side text_side() const;
  std::vector<int32_t> teacher_prompt(int64_t example) const;
  Sequence sequence_of(const Response& response) const;
  Sequence teacher_sequence(const Response& response) const;
  double weight_of(const Response& response) const;
  void fill_student(Responses& rows, const ResponseBatch& batch, const at::Tensor& places) const;
  void fill_teacher(Responses& rows, const ResponseBatch& batch, const at::Tensor& places,
                    std::span<const Response> responses) const;
  /// The rows of some responses of a side.
  Responses rows_of(std::span<const Response> responses, const Side& side, bool with_teacher, Rowing rowing) const;
  DistillationBatch batch_of(size_t first, size_t count, Rowing rowing) const;
  at::Tensor limited(const DistillationBatch& batch, std::span<const Response> responses, Figures& figures) const;
  void measure(const Responses& rows, Figures& figures) const;
  void rename(Figures& figures) const;

  const Transformer& student_;
  const Teacher& teacher_;
  Reference reference_;
  const Method& method_;
  DistillationRecipe recipe_;
  const void* options_;
  DistillationNeeds needs_;
  SupervisedData training_, held_out_data_, text_;
  DistillationSetup setup_;
  Limits limits_;
  std::optional<Reward> reward_;

  DistillationState state_;
  Modules modules_;
  std::map<std::string, at::Tensor> module_tensors_;
  std::unique_ptr<Optimizer> modules_optimizer_;
  std::map<ResponseSource, std::map<int64_t, Response>> stored_;
  std::map<int64_t, std::pair<int64_t, Response>> refreshed_;  // with the step that each was drawn in

  int64_t step_ = 0, steps_ = 1;
  std::vector<int64_t> prepared_for_;  // the examples of the step whose responses are there
  Side main_, data_side_, teacher_side_, student_side_, text_side_;
  HeldOutDistillation held_out_;
  int64_t tokens_ = 0;
  double sampling_seconds_ = 0, step_seconds_ = 0, sampled_before_step_ = 0, sampling_share_ = 0;
  std::chrono::steady_clock::time_point step_began_;
};

}  // namespace kullback
