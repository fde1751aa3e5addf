#include "kullback/distill/run.h"

#include <numeric>
#include <set>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/suggest.h"
#include "kullback/distill/student_vocabulary.h"
#include "kullback/lm/make_student.h"
#include "kullback/lm/read.h"
#include "kullback/report/progress.h"
#include "kullback/train/distillation_task.h"

namespace kullback {
namespace {

/// Weights that sum to 1, one a teacher.
std::vector<double> teacher_weights(const DistillOptions& o) {
  if (o.teacher_weight.empty())
    return std::vector<double>(o.teacher.size(), 1.0 / static_cast<double>(o.teacher.size()));
  if (o.teacher_weight.size() != o.teacher.size())
    fail("option --teacher-weight: {} weights are given for {} teachers", o.teacher_weight.size(), o.teacher.size());
  const double sum = std::accumulate(o.teacher_weight.begin(), o.teacher_weight.end(), 0.0);
  std::vector<double> weights = o.teacher_weight;
  for (double& weight : weights) weight /= sum;
  return weights;
}

void check_models(const DistillJob& job) {
  const DistillOptions& o = job.distill;
  const bool made = !o.student_layers.empty();
  if (o.teacher.empty() && o.teacher_record.empty())
    fail("kullback distill: --teacher is missing, or --teacher-record");
  if (made && !job.run.model.empty())
    fail("option --student-layers: makes the student of the teacher; leave out --student");
  if (!made && job.run.model.empty()) fail("kullback distill: --student is missing, or --student-layers");
  if (!made && o.student_width > 0) fail("option --student-width: shapes a student that --student-layers makes");
  if (!made && !o.student_tokenizer.empty())
    fail("option --student-tokenizer: is for a student that --student-layers makes; --student has its own");
  if (made && o.teacher.empty()) fail("option --student-layers: the student is made of a teacher; give --teacher too");
  if (!made && !o.teacher.empty() && !o.teacher_record.empty())
    fail("option --teacher-record: what was recorded stands in for --teacher; leave one of them out");
  if (made && job.run.train == RunOptions::Train::lora)
    fail("option --train: a student made of the teacher's layers is saved whole; take --train full");
  teacher_weights(o);
}

std::string teacher_text(const DistillOptions& o) {
  if (!o.teacher_record.empty()) return fmt::format("teacher: what was recorded in {}", o.teacher_record);
  if (o.teacher.size() == 1) return fmt::format("teacher: {}", o.teacher[0]);
  const std::vector<double> weights = teacher_weights(o);
  std::vector<std::string> names;
  for (size_t i = 0; i < weights.size(); ++i) names.push_back(fmt::format("{:.3g} of {}", weights[i], o.teacher[i]));
  return fmt::format("teacher: the mixture of the probabilities of {}", listing(names));
}

/// The number of real tokens that both have; says once where heads hold more, or other ones.
int64_t aligned_vocabulary(const Model& student, const Teacher& teacher) {
  int64_t common = student.text().vocabulary_size();
  std::string padded;
  const auto add = [&](const std::string& name, int64_t rows) {
    if (rows != common) padded += fmt::format("{}{} of {}", padded.empty() ? "" : ", ", rows, name);
  };
  if (teacher.recorded()) {
    common = std::min(common, teacher.vocabulary());
  } else {
    for (const Model& model : teacher.models())
      common = std::min(common, common_vocabulary(student.text(), model.text()));
    for (const Model& model : teacher.models()) add(model.name, model.config().vocabulary_size);
  }
  add("the student", student.config().vocabulary_size);
  if (!padded.empty())
    note(fmt::format("both models' laws are those of the {} real tokens, renormalised (rows of the heads: {})", common,
                     padded));
  return common;
}

struct Models {
  std::unique_ptr<Teacher> teacher;
  Model student;
  std::optional<Model> other;
};

Models load_models(const DistillJob& job) {
  const DistillOptions& o = job.distill;
  Models models;
  std::vector<Model> teachers;
  for (const std::string& name : o.teacher) teachers.push_back(load_model(name));
  if (o.student_layers.empty()) {
    models.student = load_model(job.run.model);
  } else {
    models.student = make_student(teachers[0], {.layers = student_layers(o.student_layers, teachers[0].config().layers),
                                                .width = o.student_width});
    if (!o.student_tokenizer.empty()) {
      const auto tokenizer = read_tokenizer(o.student_tokenizer);
      if (!tokenizer) fail("option --student-tokenizer: there is no tokenizer.json in {}", o.student_tokenizer);
      take_vocabulary(models.student, *tokenizer, static_cast<uint64_t>(job.loop.seed));
    }
  }
  if (!o.other_model.empty()) models.other = load_model(o.other_model);
  if (o.teacher_record.empty()) models.teacher = std::make_unique<Teacher>(std::move(teachers), teacher_weights(o));
  return models;
}

std::vector<MeasureText> measures_of(const DistillJob& job) {
  return distillation_measures(!job.distill.teacher_record.empty());
}

/// What the task alone knows of the run that it was.
void finish(const DistillationTask& task, const Model& student, const Teacher& teacher, uint64_t seed,
            std::map<std::string, Interval>& after, RunReport& report, Json& evaluation) {
  const HeldOutDistillation& held_out = task.held_out();
  if (!held_out.calibration.empty()) after["calibration_error"] = held_out.calibration_error(seed);
  for (Plot& plot : held_out.plots(seed)) report.plots.push_back(std::move(plot));
  const auto size = static_cast<double>(student.transformer.parameter_count());
  report.resources.emplace_back("parameters of the student", fmt::format("{:.4g} million", size / 1e6));
  evaluation["student_parameters"] = size;
  if (!teacher.recorded()) {
    const auto whole = static_cast<double>(teacher.parameter_count());
    report.resources.emplace_back("parameters of the teacher", fmt::format("{:.4g} million", whole / 1e6));
    report.resources.emplace_back("the student's size", fmt::format("{:.1f} % of the teacher's", 100 * size / whole));
    evaluation["teacher_parameters"] = whole;
    if (held_out.student_seconds > 0 && held_out.teacher_seconds > 0) {
      const double speed_up = held_out.teacher_seconds / held_out.student_seconds;
      report.resources.emplace_back(
          "the student's forward pass",
          fmt::format("{:.2f} times as fast as the teacher's, on the held-out rows", speed_up));
      evaluation["speed_up"] = speed_up;
    }
  }
  const double share = task.step_seconds() > 0 ? task.sampling_seconds() / task.step_seconds() : 0;
  report.resources.emplace_back("share of training spent in sampling", fmt::format("{:.1f} %", 100 * share));
  evaluation["sampling_share"] = share;
}

}  // namespace

const Options<DistillOptions>& distill_options() {
  using O = DistillOptions;
  static const auto options =
      Options<O>()
          .option("teacher", &O::teacher,
                  "the teacher: a name known to `kullback pull`, a GGUF file or a Hugging Face folder; several, with "
                  "commas, teach by the mixture of their probabilities")
          .option("teacher-weight", &O::teacher_weight, positive,
                  "what each of several teachers weighs; equal where left out")
          .option("teacher-record", &O::teacher_record,
                  "a file that `kullback teacher record` has written, instead of a teacher")
          .option("student-layers", &O::student_layers,
                  "make the student of these layers of the (first) teacher, with their weights: every-2, or 0,2,4, or "
                  "mean-2 for the mean of each two neighbours")
          .option(
              "student-width", &O::student_width, non_negative,
              "with --student-layers: hidden states of the first so many dimensions, and as much fewer heads and MLP "
              "columns; 0: the teacher's")
          .option(
              "student-tokenizer", &O::student_tokenizer,
              "with --student-layers: a folder whose tokenizer.json the student gets; its embeddings begin as means of "
              "the teacher's (for reduced-vocab and uld)")
          .option("other-model", &O::other_model, "a third, public model, for methods that ask for one")
          .option("text-data", &O::text_data,
                  "JSONL file of plain texts (column text) for methods that also learn from such")
          .option("response-tokens", &O::response_tokens, at_least(1),
                  "length of a response drawn from teacher or student at most");
  return options;
}

void check_options(const DistillJob& job) {
  const auto* recipe = std::any_cast<DistillationRecipe>(&job.method->recipe);
  if (recipe == nullptr) fail("option --method: {} has no recipe that `kullback distill` could run", job.method->name);
  recipe->validate(job.method_options.get());
  const DistillationNeeds needs = recipe->needs(job.method_options.get());
  check_models(job);
  if (needs.other_model && job.distill.other_model.empty())
    fail("option --other-model: method {}, with these options, needs a third, public model", job.method->name);
  if (!needs.other_model && !job.distill.other_model.empty())
    fail("option --other-model: method {} asks for no third model", job.method->name);
  if (!needs.text && !job.distill.text_data.empty())
    fail("option --text-data: method {} takes no plain text", job.method->name);
}

RunResult run_distillation(DistillJob job) {
  check_options(job);
  check_run(job);
  const DistillationNeeds needs = std::any_cast<DistillationRecipe>(job.method->recipe).needs(job.method_options.get());

  Models models = load_models(job);
  Model& student = models.student;
  SupervisedData training = load_supervised(job.data.data, student, job.data);
  if (!job.distill.teacher_record.empty()) {
    if (!job.data.eval_data.empty())
      fail("option --eval-data: the teacher's rows at it were not recorded; hold out a part");
    models.teacher = std::make_unique<Teacher>(recorded_rows(job.distill.teacher_record, training, student.text()));
  }
  const Teacher& teacher = *models.teacher;
  SupervisedData held_out = held_out_rows(
      training, job, [&](const std::string& path, const DataOptions& o) { return load_supervised(path, student, o); });
  SupervisedData text;
  if (!job.distill.text_data.empty()) {
    DataOptions whole = job.data;
    whole.max_rows = 0;
    text = load_supervised(job.distill.text_data, student, whole);
  }
  if (job.optimizer.learning_rate == 0 && job.run.train == RunOptions::Train::full)
    job.optimizer.learning_rate = job.distill.student_layers.empty() ? 1e-5 : 1e-4;
  if (job.optimizer.learning_rate == 0)
    job.optimizer.learning_rate = default_learning_rate(job.optimizer.optimizer, /*adapters=*/true);

  DistillationSetup setup{.stop_ids = student.generation.stop_ids,
                          .response_tokens = job.distill.response_tokens,
                          .seed = static_cast<uint64_t>(job.loop.seed),
                          .learning_rate = job.optimizer.learning_rate,
                          .batch_size = job.loop.batch_size,
                          .student_tokenizer = &student.text(),
                          .other_model = models.other ? &models.other->transformer : nullptr};
  if (needs.other_tokenizer && !teacher.recorded() && !same_tokens(student.text(), teacher.model().text())) {
    setup.vocabulary = student.text().vocabulary_size();
    setup.for_teacher = [&teacher, data = job.data](const Example& example, const std::string& response) {
      return encode_row(teacher.model(), example.prompt, response, data);
    };
    note("teacher and student have tokenizers of their own: each reads the text in its own tokens");
  } else {
    setup.vocabulary = aligned_vocabulary(student, teacher);
  }

  note_rows(training.counts, std::ssize(held_out.examples), "rows", job.data.max_length);
  const std::string whom = job.distill.student_layers.empty()
                               ? job.run.model
                               : fmt::format("layers {} of {}", job.distill.student_layers, job.distill.teacher[0]);
  RunParts parts{.title = fmt::format("{} into {}", job.method->name, whom),
                 .summary = {job.method->summary, teacher_text(job.distill)},
                 .measures = measures_of(job),
                 .rows = row_texts(training.counts, std::ssize(held_out.examples), "rows"),
                 .prompts = {},
                 .task = {}};
  parts.reference = false;
  parts.derive = add_perplexity;
  for (const Example& example : held_out.examples) {
    if (!example.prompt.empty()) parts.prompts.push_back({example.prompt, example.text, ""});
  }
  parts.task = [&](const Transformer& policy, Reference reference, Limits limits) {
    return std::make_unique<DistillationTask>(policy, teacher, reference, *job.method, job.method_options.get(),
                                              std::move(training), std::move(held_out), std::move(text),
                                              std::move(setup), std::move(limits));
  };
  parts.prepare = [&](Task& task, const std::filesystem::path& folder, const LoopOptions& loop) {
    const Schedule schedule(loop, task.examples());
    std::set<int64_t> seen;
    for (int64_t step = 0; step < schedule.steps() && std::ssize(seen) < task.examples(); ++step) {
      for (const int64_t example : schedule.step_examples(step)) seen.insert(example);
    }
    std::optional<Progress> progress;
    const std::vector<int64_t> examples(seen.begin(), seen.end());
    dynamic_cast<DistillationTask&>(task).prepare(folder, examples, schedule.steps(), [&](int64_t done, int64_t total) {
      if (!progress) progress.emplace("responses", total);
      progress->update(done);
    });
    if (progress) progress->finish();
  };
  parts.finish = [&](const Task& task, std::map<std::string, Interval>& after, RunReport& report, Json& evaluation) {
    finish(dynamic_cast<const DistillationTask&>(task), student, teacher, static_cast<uint64_t>(job.loop.seed), after,
           report, evaluation);
  };
  return run_training(student, job, parts);
}

}  // namespace kullback
