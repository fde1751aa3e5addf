#include "kullback/train/distillation_task.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/random.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/processes.h"
#include "kullback/train/similarity.h"

namespace kullback {

using at::Tensor;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_weights(const SupervisedData& data, const std::string& method) {
  for (const Example& example : data.examples) {
    if (example.weight != 1)
      fail("{}:{}: column \"weight\" is {}, and {} takes no weights", data.path, example.line, example.weight, method);
  }
}

}  // namespace

DistillationTask::DistillationTask(const Transformer& student, const Teacher& teacher, Reference reference,
                                   const Method& method, const void* options, SupervisedData training,
                                   SupervisedData held_out, SupervisedData text, DistillationSetup setup, Limits limits)
    : student_(student),
      teacher_(teacher),
      reference_(reference),
      method_(method),
      recipe_(std::any_cast<DistillationRecipe>(method.recipe)),
      options_(options),
      needs_(recipe_.needs(options)),
      training_(std::move(training)),
      held_out_data_(std::move(held_out)),
      text_(std::move(text)),
      setup_(std::move(setup)),
      limits_(std::move(limits)) {
  if (!needs_.weights) {
    for (const SupervisedData* data : {&training_, &held_out_data_, &text_}) check_weights(*data, method.name);
  }
  if ((!limits_.empty() || setup_.distances) && reference_.model == nullptr)
    throw std::logic_error("limits and distances need a reference");
  if (needs_.other_model && setup_.other_model == nullptr)
    fail("option --other-model: method {} needs a third, public model", method.name);
  if (!needs_.reward.empty()) reward_ = reward(needs_.reward);
  if (setup_.for_teacher && !needs_.other_tokenizer)
    fail("option --teacher: method {} needs a teacher of the student's tokenizer", method.name);
  const bool asks_elsewhere = needs_.live_teacher || needs_.draws_from_teacher() || needs_.draws_from_student() ||
                              (needs_.text && needs_.text_teacher && !text_.examples.empty());
  if (teacher_.recorded() && asks_elsewhere)
    fail(
        "option --teacher-record: method {}, with these options, asks the teacher where nothing was recorded; give "
        "--teacher",
        method.name);
  if (needs_.live_teacher || needs_.draws_from_teacher() || needs_.sources.both > 0)
    static_cast<void>(teacher_.model());
  if (recipe_.modules) {
    if (processes().count() > 1)
      fail("method {} trains tensors of its own beside the student, which several processes cannot do", method.name);
    modules_ = recipe_.modules({.student_width = student_.config.hidden_size,
                                .teacher_width = teacher_.recorded() ? 0 : teacher_.models()[0].config().hidden_size,
                                .student_vocabulary = setup_.vocabulary,
                                .teacher_vocabulary = teacher_.vocabulary(),
                                .seed = setup_.seed},
                               options_);
    for (const NamedTensor& one : modules_) module_tensors_[one.name] = one.tensor.detach().requires_grad_(true);
    for (NamedTensor& one : modules_) one.tensor = module_tensors_[one.name];
    modules_optimizer_ = std::make_unique<Optimizer>(modules_, OptimizerOptions{});
  }
}

DistillationTask::~DistillationTask() = default;

std::string DistillationTask::describe(std::span<const int64_t> examples) const {
  std::vector<int64_t> lines;
  for (const int64_t i : examples) lines.push_back(training_.examples[static_cast<size_t>(i)].line);
  return described_lines(std::move(lines), training_.path);
}

DistillationStep DistillationTask::context(std::span<const int64_t> examples) {
  return {.run = *this,
          .state = state_,
          .modules = module_tensors_,
          .step = step_,
          .steps = steps_,
          .examples = examples,
          .seed = setup_.seed,
          .responses = main_.responses};
}

// The step.

void DistillationTask::before_step(int64_t step, int64_t steps, std::span<const int64_t> examples) {
  step_began_ = Clock::now();
  sampled_before_step_ = sampling_seconds_;
  step_ = step, steps_ = steps;
  if (modules_optimizer_) modules_optimizer_->clear_gradients();
  main_ = {};
  DistillationStep now = context(examples);
  main_ = side_of(chosen_responses(now));
  if (main_.responses.size() != examples.size())
    throw std::logic_error("a recipe chose another number of responses than the step has examples");
  std::vector<int64_t> answered;  // a recipe may have chosen responses to other prompts
  for (const Response& response : main_.responses) answered.push_back(response.example);
  if (needs_.data) data_side_ = side_of(data(answered));
  if (needs_.of_teacher)
    teacher_side_ =
        side_of(needs_.fresh_teacher ? draw(ResponseSource::teacher, answered, fmt::format("beside {}", step), {})
                                     : stored(ResponseSource::teacher, answered));
  if (needs_.of_student) student_side_ = side_of(own_responses(answered));
  if (needs_.text) text_side_ = text_side();
  prepared_for_.assign(examples.begin(), examples.end());
  now.responses = main_.responses;
  if (recipe_.before_step) recipe_.before_step(now, options_);
}

std::vector<Response> DistillationTask::chosen_responses(DistillationStep& step) {
  if (recipe_.responses) return recipe_.responses(step, options_);
  const double u = RandomStream(setup_.seed, "source", static_cast<uint64_t>(step.step)).uniform();
  const SourceMix& mix = needs_.sources;
  if (u < mix.student) return own_responses(step.examples);
  const std::string name = fmt::format("step {}", step.step);
  if (u < mix.student + mix.both) return draw(ResponseSource::both, step.examples, name, {});
  if (u < mix.student + mix.both + mix.teacher) {
    return needs_.fresh_teacher ? draw(ResponseSource::teacher, step.examples, name, {})
                                : stored(ResponseSource::teacher, step.examples);
  }
  return data(step.examples);
}

DistillationTask::Side DistillationTask::side_of(std::vector<Response> responses) const {
  Side side{.responses = std::move(responses)};
  for (const Response& response : side.responses) {
    const Sequence sequence = sequence_of(response);
    const int64_t counted = sequence.counted() - (sequence.response_begin == 0 ? 1 : 0);
    side.tokens += weight_of(response) * static_cast<double>(std::max<int64_t>(counted, 0));
    if (counted > 0) side.sequences += weight_of(response);
  }
  return side;
}

/// Plain texts of a step, as many as it has examples; the run goes through them in an order of its own. Their numbers count
/// on behind the training rows'.
DistillationTask::Side DistillationTask::text_side() const {
  if (text_.examples.empty()) return {};
  const LoopOptions order{.batch_size = std::ssize(main_.responses), .seed = static_cast<int64_t>(setup_.seed) + 1};
  std::vector<Response> texts;
  for (const int64_t i : Schedule(order, std::ssize(text_.examples)).step_examples(step_)) {
    const Sequence& whole = text_.examples[static_cast<size_t>(i)].sequence;
    texts.push_back({.example = examples() + i, .tokens = {whole.ids.begin() + whole.response_begin, whole.ids.end()}});
  }
  return side_of(std::move(texts));
}

double DistillationTask::weight_of(const Response& response) const {
  const auto i = static_cast<size_t>(response.example);
  return i < training_.examples.size() ? training_.examples[i].weight
                                       : text_.examples[i - training_.examples.size()].weight;
}

Figures DistillationTask::accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measured) {
  if (!std::ranges::equal(prepared_for_, whole)) before_step(step_, steps_, whole);
  const auto first = static_cast<size_t>(batch.data() - whole.data());
  const std::span<const Response> responses = std::span(main_.responses).subspan(first, batch.size());
  const DistillationBatch b = batch_of(first, batch.size(), Rowing::training);
  for (const Response& response : responses) tokens_ += std::ssize(sequence_of(response).ids);
  if (!b.mask.any().item<bool>() && !b.data.defined() && !b.text.defined()) {
    warn(fmt::format("{}: no token to count; the batch is skipped", describe(batch)));
    return {{"loss", {}}, {"skipped_rows", {static_cast<double>(batch.size()), 1}}};
  }
  const DistillationLoss loss = recipe_.loss(b, options_);
  const double value = loss.value.item<double>();
  const double share = static_cast<double>(whole.size());
  Figures figures;
  figures["loss"] = {value * share, static_cast<double>(batch.size())};
  Tensor minimised = loss.value;
  if (!limits_.empty()) minimised = minimised + limited(b, responses, figures);
  if (std::isfinite(value) && minimised.requires_grad()) minimised.backward();  // else weights stay as they are

  for (const auto& [name, part] : loss.parts) {
    if (!part.defined()) continue;
    figures[name] = part.dim() == 0 ? Mean{part.item<double>() * share, static_cast<double>(batch.size())}
                                    : total(part.to(at::kDouble));
  }
  const double counted = b.mask.sum().item<double>();
  figures["response_tokens"] = {counted, static_cast<double>(batch.size())};
  for (const Response& response : responses) add(figures, {{"source/" + source_name(response.source), {1, 0}}});
  for (auto& [name, mean] : figures) {
    if (name.starts_with("source/")) mean.count = static_cast<double>(batch.size());
  }
  if (measured && counted > 0) measure(b, figures);
  return figures;
}

/// The limits' term: divergences of the student from itself before training, weighted as the limits say.
Tensor DistillationTask::limited(const DistillationBatch& b, std::span<const Response> responses,
                                 Figures& figures) const {
  std::vector<Sequence> sequences;
  std::vector<const Sequence*> pointers;
  for (const Response& response : responses) sequences.push_back(sequence_of(response));
  for (const Sequence& sequence : sequences) pointers.push_back(&sequence);
  Rows student = rows_at(b.student, b.mask.reshape(-1).nonzero().squeeze(1));
  student.vocabulary = 0;
  const Rows reference = reference_rows(reference_, response_batch(pointers));
  const HeadRequest wanted{.labels = {}, .scores = {}, .divergences = limits_.divergences()};
  HeadStatistics weights;
  const auto count = static_cast<double>(main_.responses.size());
  for (const double weight : limits_.weights(main_.tokens, count))
    weights.divergences.push_back(at::full({student.hidden.size(0)}, weight, at::kDouble));
  const HeadLoss loss = head_loss(student, reference, wanted, weights);
  add_limit_figures(limits_, loss.statistics.divergences, static_cast<double>(responses.size()), figures);
  return loss.loss;
}

/// Gives figures the names that the setup has for them.
void DistillationTask::rename(Figures& figures) const {
  for (const auto& [from, to] : setup_.names) {
    auto figure = figures.extract(from);
    if (figure.empty() || to.empty()) continue;
    figure.key() = to;
    figures.insert(std::move(figure));
  }
}

/// Exact distances to the teacher on the batch.
void DistillationTask::measure(const Responses& rows, Figures& figures) const {
  if (!rows.teacher.hidden.defined() || rows.teacher_labels.defined()) return;
  const at::NoGradGuard no_grad;
  const Tensor places = rows.mask.reshape(-1).nonzero().squeeze(1);
  Rows student = rows_at(rows.student, places);
  student.hidden = student.hidden.detach();
  HeldOutDistillation nothing;
  Figures all = held_out_figures(student, rows_at(rows.teacher, places),
                                 rows.labels.reshape(-1).index_select(0, places), teacher_.recorded(), nothing);
  for (const char* name : {"forward_kl", "backward_kl", "teacher_tv", "js", "agreement"}) {
    if (all.contains(name)) figures[name] = all[name];
  }
  rename(figures);
}

void DistillationTask::after_step(int64_t step, int64_t steps, Figures& figures) {
  limits_.after_step(figures);
  step_ = step - 1, steps_ = steps;
  if (modules_optimizer_) {
    modules_optimizer_->step(needs_.modules_rate * figures.at("learning_rate").value() / setup_.learning_rate);
    modules_optimizer_->clear_gradients();
  }
  if (recipe_.after_step) {
    DistillationStep now = context(prepared_for_);
    recipe_.after_step(now, figures, options_);
  }
  const double taken = seconds_since(step_began_);
  sampling_share_ = taken > 0 ? (sampling_seconds_ - sampled_before_step_) / taken : 0;
  step_seconds_ += taken;
  step_ = step;
  prepared_for_.clear();
}

/// Every process looks at all rows: intervals and plots need more of them than sums.
std::vector<Figures> DistillationTask::evaluate(const std::function<void(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  held_out_ = {};
  std::vector<Figures> rows;
  Figures limits, all;
  for (const Example& example : held_out_data_.examples) {
    const Sequence* sequence = &example.sequence;
    const ResponseBatch batch = response_batch({&sequence, 1});
    progress(std::ssize(rows) + 1, std::ssize(held_out_data_.examples));
    if (batch.labels.numel() == 0) continue;
    auto began = Clock::now();
    Rows student = student_.head_rows(response_hidden(student_, batch));
    held_out_.student_seconds += seconds_since(began);
    std::vector<Tensor> distances;
    if (!limits_.empty() || setup_.distances) {
      const Rows reference = reference_rows(reference_, batch);
      const HeadRequest wanted{.labels = {}, .scores = {}, .divergences = limits_.divergences()};
      if (!limits_.empty())
        add_limit_figures(limits_, head_statistics(student, reference, wanted).divergences, 1, limits);
      if (setup_.distances) distances = exact_distances(student, reference);
    }
    student.vocabulary = std::min(setup_.vocabulary, student_.config.vocabulary_size);
    Rows teacher;
    if (!setup_.for_teacher) {
      began = Clock::now();
      teacher = teacher_.rows(batch, {example.line}, setup_.vocabulary, student_.dtype());
      held_out_.teacher_seconds += seconds_since(began);
    }
    rows.push_back(held_out_figures(student, teacher, batch.labels, teacher_.recorded(), held_out_));
    if (!distances.empty()) add_distances(distances, rows.back());
    rename(rows.back());
    add(all, rows.back());
  }
  if (!rows.empty()) {
    limits_.observe_held_out(limits);
    if (recipe_.after_evaluation) {
      DistillationStep now = context({});
      recipe_.after_evaluation(now, all.at("loss").value(), options_);
    }
  }
  return rows;
}

// What a checkpoint holds.

Json DistillationTask::state() const {
  Json state{{"step", step_},
             {"limits", limits_.state()},
             {"values", state_.values},
             {"tensors", Json::array()},
             {"kept responses", Json::array()},
             {"module steps", modules_optimizer_ ? modules_optimizer_->steps() : 0}};
  for (const auto& [name, tensor] : state_.tensors)
    state["tensors"].push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  for (const auto& [example, kept] : refreshed_)
    state["kept responses"].push_back({example, kept.first, kept.second.tokens, kept.second.numbers});
  return state;
}

void DistillationTask::restore(const Json& state) {
  if (state.is_null()) return;
  step_ = state.at("step").get<int64_t>();
  limits_.restore(state.at("limits"));
  state_.values = state.at("values");
  state_.tensors.clear();
  for (const Json& one : state.at("tensors"))
    state_.tensors[one[0].get<std::string>()] =
        at::empty(one[1].get<std::vector<int64_t>>(), static_cast<at::ScalarType>(one[2].get<int>()));
  for (const Json& one : state.at("kept responses")) {
    Response response{.example = one[0].get<int64_t>(),
                      .tokens = one[2].get<std::vector<int32_t>>(),
                      .source = ResponseSource::student,
                      .numbers = one[3].get<std::map<std::string, std::vector<double>>>()};
    refreshed_[response.example] = {one[1].get<int64_t>(), response};
  }
  if (modules_optimizer_) modules_optimizer_->set_steps(state.at("module steps").get<int64_t>());
}

std::vector<NamedTensor> DistillationTask::kept() {
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : state_.tensors) all.push_back({"state." + name, tensor});
  for (const NamedTensor& one : modules_) all.push_back({"module." + one.name, one.tensor.detach()});
  if (modules_optimizer_) {
    for (const NamedTensor& one : modules_optimizer_->moments()) all.push_back({"module." + one.name, one.tensor});
  }
  return all;
}

}  // namespace kullback
