#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/generate_together.h"
#include "kullback/text/tokenizer.h"
#include "kullback/train/figures.h"
#include "kullback/train/method_builder.h"

namespace kullback {

// How a method of distillation becomes a recipe, which `kullback distill --method NAME` runs. Its file holds a struct of options,
// the mathematics as a free function on rows, and a registration:
//
//   const Registered akl{distillation_method<AklOptions>("akl")
//       .summary("…").formula("…").when("…").paper({"title", "2404.02657", "venue"})
//       .option("mu", &AklOptions::mu, fraction, "mass of the head", "authors")
//       .loss([](const DistillationBatch& b, const AklOptions& o) {
//         const AklLoss l = akl_loss(b.student, b.teacher, b.labels, b.mask, o, b.tokens_in_step, b.sequences_in_step);
//         return DistillationLoss{.value = l.loss, .parts = {{"forward_kl", l.forward}, {"head_weight", l.weight}}};
//       })};
//
// That trains on the data's responses, with the teacher's rows. `.needs(o -> DistillationNeeds)` asks for more, or for responses
// of another source. Steps that a method may add, each optional:
//   .validate(o)               options that contradict each other: throws an Error
//   .modules(sizes, o)         tensors of its own that are trained beside the student (an adapter, a critic's head)
//   .before_run(run, o)        once: build responses, stores
//   .responses(step, o)        which responses this step trains on, instead of what `needs` says of sources
//   .before_step(step, o)      passes over the step's batches before its loss: thresholds over the whole step, critics
//   .after_step(step, figures, o)   schedules, moving weights
//   .after_evaluation(step, loss, o)   the held-out cross-entropy of the student, before the first step too
// What must outlive a step stands in step.state, which checkpoints hold.

/// Whose response it is that is trained on.
enum class ResponseSource { data, teacher, student, both };  ///< both: teacher and student drew its tokens together
std::string source_name(ResponseSource source);

/// A response to an example's prompt.
struct Response {
  int64_t example = 0;               ///< number of the training row whose prompt it answers
  std::vector<int32_t> tokens = {};  ///< the student's; the end token is among them where the response ended
  ResponseSource source = ResponseSource::data;
  /// Numbers kept with each token, such as "sampler_logps": log-probability under the law that it was drawn from.
  std::map<std::string, std::vector<double>> numbers = {};
  std::vector<int32_t> teacher_tokens = {};  ///< where the teacher has another tokenizer: the same text in its tokens
};

/// A batch of responses with both models' rows at each token of them.
struct Responses {
  Rows student;                   ///< [B T] row b T + t predicts labels[b][t]; differentiable in the student
  Rows teacher;                   ///< [B T], or [B T'] where the teacher has another tokenizer; without gradient
  at::Tensor labels;              ///< [B,T] int64; what stands where the mask is false never counts
  at::Tensor mask;                ///< [B,T] bool
  int64_t teacher_truncated = 0;  ///< > 0: the teacher's rows hold so many tokens at most (--teacher-record)
  at::Tensor teacher_labels, teacher_mask;  ///< [B,T'] of another tokenizer; else undefined
  at::Tensor weight;                        ///< [B] of each example; undefined: all 1. Only with Needs::weights
  /// What means are taken over. A step may be cut into several batches (accumulation): these count the whole step, so that the
  /// sum of the batches' losses is exactly the loss of the big batch. 0: this batch is the step.
  double tokens_in_step = 0, sequences_in_step = 0;  ///< sums of weights, of sequences with any counted token
  std::vector<int64_t> lines = {};                   ///< [B] where each example stands in its file, from 1
  std::vector<ResponseSource> sources = {};          ///< [B]
  std::map<std::string, at::Tensor> numbers = {};    ///< [B,T] each, float64: Response::numbers
  at::Tensor similarity = {};   ///< [B] float64, to the data's response (ROUGE-L F1 on tokens); Needs::similarity
  at::Tensor scores = {};       ///< [B] float64, by Needs::reward; Needs::scores
  at::Tensor other_logps = {};  ///< [B,T] log-probability of each label under --other-model; Needs::other_model
  /// [B T, D] each, from the embeddings to the last layer before the final norm; Needs::layers. The student's are differentiable.
  std::vector<at::Tensor> student_layers = {}, teacher_layers = {};

  bool defined() const { return labels.defined(); }
};

/// What a method keeps from step to step. Checkpoints hold it.
struct DistillationState {
  Json values = Json::object();
  std::map<std::string, at::Tensor> tensors = {};
};

/// A step's batch, or a part of it, as a loss sees it. The responses that it trains on are its own members.
struct DistillationBatch : Responses {
  Responses data;        ///< the data's own responses to the same prompts; Needs::data
  Responses of_teacher;  ///< the teacher's, made once before the run; Needs::of_teacher
  Responses of_student;  ///< the student's; Needs::of_student
  Responses text;        ///< plain text of --text-data; undefined where there is none. Needs::text
  std::map<std::string, at::Tensor> modules = {};  ///< the method's own trained tensors, differentiable
  DistillationState* state = nullptr;              ///< never null in training
  int64_t step = 0, steps = 1;                     ///< from 0, of so many
  uint64_t seed = 0;                               ///< of the run
  const Tokenizer* student_tokenizer = nullptr;    ///< null where the model carries none, and in fixtures
  const Tokenizer* teacher_tokenizer = nullptr;
};

/// What a distillation loss gives back.
struct DistillationLoss {
  at::Tensor value;  ///< scalar that is minimised; the sum over the batches of a step is the step's loss
  /// Anything else worth logging, detached, by name. A scalar adds up over the batches of a step, as the loss does; of anything
  /// longer the mean over its elements is logged.
  std::map<std::string, at::Tensor> parts = {};
};

/// How responses are drawn.
struct ResponseSampling {
  Sampling sampling = {};
  int64_t max_new_tokens = 0;  ///< 0: the run's --response-tokens
  int64_t beams = 1;           ///< above 1: beam search of this width instead of a draw
  bool interpolate = false;    ///< of the beams, the one most similar to the data's response, not the likeliest
};

/// Probabilities of the sources of a step's responses; drawn once a step, for all its batches. They sum to 1.
struct SourceMix {
  double data = 1, teacher = 0, student = 0;
  double both = 0;  ///< drawn together, as Needs::together says
};

/// What a recipe needs. The trainer provides this and nothing more.
struct DistillationNeeds {
  bool teacher = true;         ///< the teacher's rows at the responses
  SourceMix sources = {};      ///< where responses come from, unless the recipe has `responses`
  bool fresh_teacher = false;  ///< draw the teacher's responses anew at each step, instead of once before the run
  int64_t refresh = 1;         ///< steps that a student's response is kept; 0: those before the first step are kept
  ResponseSampling of_teacher_by = {}, of_student_by = {};
  Together together = {};                                     ///< how both models draw tokens together
  bool data = false, of_teacher = false, of_student = false;  ///< further responses to the same prompts
  bool side_teacher = true;                                   ///< the teacher's rows at those further responses too
  bool text = false;                                          ///< plain text too, where --text-data is given
  bool text_teacher = false;                                  ///< the teacher's rows at it
  bool other_tokenizer = false;                               ///< the teacher may have another tokenizer
  bool layers = false;                                        ///< hidden states of every layer of both models
  bool similarity = false;
  bool other_model = false;   ///< a third, frozen model: --other-model
  std::string reward = {};    ///< the name of a reward (rewards/reward.h) that responses are scored by; empty: none
  bool scores = false;        ///< its scores with each batch
  bool weights = false;       ///< takes the data's column `weight`; else a weight other than 1 is refused
  bool live_teacher = false;  ///< a recorded teacher does not do: it must be asked at responses that are not the data's
  double modules_rate = 1e-4;  ///< learning rate of the method's own tensors; follows the student's schedule
  std::vector<std::string> in_words() const;
  bool draws_from_student() const { return sources.student > 0 || sources.both > 0 || of_student; }
  bool draws_from_teacher() const { return sources.teacher > 0 || of_teacher; }
};

/// Sizes that a method's own tensors depend on.
struct DistillationSizes {
  int64_t student_width = 0, teacher_width = 0;            ///< of the last hidden states
  int64_t student_vocabulary = 0, teacher_vocabulary = 0;  ///< real tokens
  uint64_t seed = 0;
};

/// What the run does for a recipe's optional steps.
class DistillationRun {
 public:
  virtual ~DistillationRun() = default;
  virtual const Transformer& student() const = 0;
  virtual const Transformer& teacher() const = 0;  ///< Error where it is recorded, or there are several
  virtual int64_t examples() const = 0;
  virtual std::vector<int32_t> prompt(int64_t example) const = 0;  ///< in the student's tokens
  /// Tokens that end a response.
  virtual const std::vector<int32_t>& stop_ids() const = 0;
  virtual const Tokenizer* student_tokenizer() const = 0;  ///< null where the model carries none
  virtual const Tokenizer* teacher_tokenizer() const = 0;
  /// The data's responses to these examples.
  virtual std::vector<Response> data(std::span<const int64_t> examples) const = 0;
  /// Drawn from the teacher's or the student's law, or by both together, in evaluation mode. `name` and the number of each in
  /// `examples` name the random streams: the same name gives the same draws, in a resumed run too. `beginnings`: tokens that
  /// stand already, one list an example, or none; they are part of the response.
  virtual std::vector<Response> draw(ResponseSource source, std::span<const int64_t> examples, const std::string& name,
                                     const std::vector<std::vector<int32_t>>& beginnings = {}) = 0;
  /// The teacher's (or the untrained student's) responses to these, made once before the run.
  virtual std::vector<Response> stored(ResponseSource source, std::span<const int64_t> examples) = 0;
  /// What the reward of the recipe's needs says of these.
  virtual std::vector<double> scores(std::span<const Response> responses) const = 0;
  /// Calls f with these responses, a batch at a time, cut as the step's batches are; the student gets no gradient.
  virtual void each_batch(std::span<const Response> responses,
                          const std::function<void(const DistillationBatch&)>& f) = 0;
};

/// One step of the optimiser as a recipe's optional steps see it.
struct DistillationStep {
  DistillationRun& run;
  DistillationState& state;
  std::map<std::string, at::Tensor>& modules;
  int64_t step = 0, steps = 1;             ///< from 0, of so many
  std::span<const int64_t> examples = {};  ///< of the step, as the run's order has them
  uint64_t seed = 0;
  std::span<const Response> responses = {};  ///< those that the step trains on, once they are known
};

using Modules = std::vector<NamedTensor>;

/// A distillation method, its options' type erased: what `kullback distill` runs. Steps that a method lacks are empty.
struct DistillationRecipe {
  std::function<DistillationNeeds(const void*)> needs;
  std::function<void(const void*)> validate;
  std::function<Modules(const DistillationSizes&, const void*)> modules;
  std::function<void(DistillationStep&, const void*)> before_run;
  std::function<std::vector<Response>(DistillationStep&, const void*)> responses;
  std::function<void(DistillationStep&, const void*)> before_step;
  std::function<DistillationLoss(const DistillationBatch&, const void*)> loss;
  std::function<void(DistillationStep&, Figures&, const void*)> after_step;
  std::function<void(DistillationStep&, double, const void*)> after_evaluation;
};

/// Puts a distillation method together; converts to what `Registered` takes.
template <class O>
class DistillationMethod : public MethodBuilder<DistillationMethod<O>, O> {
 public:
  explicit DistillationMethod(std::string name, Family family)
      : MethodBuilder<DistillationMethod<O>, O>(std::move(name), family) {
    recipe_.needs = [](const void*) { return DistillationNeeds{}; };
    recipe_.validate = [](const void*) {};
  }
  DistillationMethod& needs(std::function<DistillationNeeds(const O&)> f) {
    return recipe_.needs = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& validate(std::function<void(const O&)> f) {
    return recipe_.validate = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& modules(std::function<Modules(const DistillationSizes&, const O&)> f) {
    return recipe_.modules = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& before_run(std::function<void(DistillationStep&, const O&)> f) {
    return recipe_.before_run = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& responses(std::function<std::vector<Response>(DistillationStep&, const O&)> f) {
    return recipe_.responses = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& before_step(std::function<void(DistillationStep&, const O&)> f) {
    return recipe_.before_step = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& loss(std::function<DistillationLoss(const DistillationBatch&, const O&)> f) {
    return recipe_.loss = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& after_step(std::function<void(DistillationStep&, Figures&, const O&)> f) {
    return recipe_.after_step = this->untyped(std::move(f)), *this;
  }
  DistillationMethod& after_evaluation(std::function<void(DistillationStep&, double, const O&)> f) {
    return recipe_.after_evaluation = this->untyped(std::move(f)), *this;
  }

  operator Method() const { return this->built(recipe_.needs(std::make_shared<O>().get()).in_words(), recipe_); }

 private:
  DistillationRecipe recipe_;
};

/// `family`: alignment, for a method that asks a reward; its policy is the student here, what it is held to the teacher.
template <class O>
DistillationMethod<O> distillation_method(std::string name, Family family = Family::distillation) {
  return DistillationMethod<O>(std::move(name), family);
}

}  // namespace kullback
