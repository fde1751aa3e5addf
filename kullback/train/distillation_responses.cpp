// Where the responses of a distillation come from, and their rows.

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/model_beams.h"
#include "kullback/train/distillation_task.h"
#include "kullback/train/processes.h"
#include "kullback/train/similarity.h"

namespace kullback {

using at::Tensor;

namespace {

constexpr const char* responses_name = "responses.jsonl";

/// Adds its life to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<int32_t> DistillationTask::prompt(int64_t example) const {
  const auto i = static_cast<size_t>(example);
  const Sequence& sequence = i < training_.examples.size() ? training_.examples[i].sequence
                                                           : text_.examples[i - training_.examples.size()].sequence;
  return {sequence.ids.begin(), sequence.ids.begin() + sequence.response_begin};
}

std::vector<int32_t> DistillationTask::teacher_prompt(int64_t example) const {
  if (!setup_.for_teacher) return prompt(example);
  const Sequence sequence = setup_.for_teacher(training_.examples[static_cast<size_t>(example)], "");
  return {sequence.ids.begin(), sequence.ids.begin() + sequence.response_begin};
}

std::vector<Response> DistillationTask::data(std::span<const int64_t> examples) const {
  std::vector<Response> responses;
  for (const int64_t example : examples) {
    const Sequence& sequence = training_.examples[static_cast<size_t>(example)].sequence;
    responses.push_back({.example = example,
                         .tokens = {sequence.ids.begin() + sequence.response_begin, sequence.ids.end()},
                         .numbers = training_.examples[static_cast<size_t>(example)].numbers});
  }
  return responses;
}

std::vector<Response> DistillationTask::draw(ResponseSource source, std::span<const int64_t> examples,
                                             const std::string& name,
                                             const std::vector<std::vector<int32_t>>& beginnings) {
  return drawn(source, examples, name, beginnings, {});
}

std::vector<Response> DistillationTask::drawn(ResponseSource source, std::span<const int64_t> examples,
                                              const std::string& name,
                                              const std::vector<std::vector<int32_t>>& beginnings,
                                              std::vector<uint64_t> streams) {
  if (source == ResponseSource::data) return data(examples);
  const Stopwatch watch(sampling_seconds_);
  const bool of_teacher = source == ResponseSource::teacher;
  const ResponseSampling& by = of_teacher ? needs_.of_teacher_by : needs_.of_student_by;
  const int64_t most = by.max_new_tokens > 0 ? by.max_new_tokens : setup_.response_tokens;
  std::vector<Response> responses;
  if (of_teacher && by.beams > 1) {
    for (const int64_t example : examples) responses.push_back(beam_response(example));
    return responses;
  }
  GenerationOptions options{
      .sampling = by.sampling,
      .max_new_tokens = most,
      .stop_ids = of_teacher && setup_.for_teacher ? teacher_.model().generation.stop_ids : setup_.stop_ids,
      .seed = RandomStream(setup_.seed, name + "/" + source_name(source)).bits(),
      .streams = {},
      .logps = true,
      .vocabulary = of_teacher && setup_.for_teacher ? teacher_.vocabulary() : setup_.vocabulary};
  const auto is_stop = [&](int32_t id) { return std::ranges::find(options.stop_ids, id) != options.stop_ids.end(); };
  std::vector<std::vector<int32_t>> prompts;
  std::vector<size_t> asked;  // which responses are to be continued
  std::vector<int64_t> left;  // tokens that each may still get
  for (size_t i = 0; i < examples.size(); ++i) {
    Response response{.example = examples[i], .tokens = {}, .source = source};
    if (!beginnings.empty()) response.tokens = beginnings[i];
    response.numbers["sampler_logps"] = std::vector<double>(response.tokens.size(), 0.0);
    std::vector<int32_t> so_far = of_teacher ? teacher_prompt(examples[i]) : prompt(examples[i]);
    so_far.insert(so_far.end(), response.tokens.begin(), response.tokens.end());
    const int64_t room = most - std::ssize(response.tokens);
    const Transformer& drawing = of_teacher ? teacher_.model().transformer : student_;
    const bool ended = !response.tokens.empty() && is_stop(response.tokens.back());
    if (room > 0 && !ended && std::ssize(so_far) < drawing.config.longest_sequence()) {
      if (so_far.empty()) fail("{}: there is no prompt to draw a response to", describe(std::span(&examples[i], 1)));
      asked.push_back(i), left.push_back(room);
      prompts.push_back(std::move(so_far));
      options.streams.push_back(streams.empty() ? i : streams[i]);
    }
    responses.push_back(std::move(response));
  }
  if (prompts.empty()) return responses;
  std::vector<Generated> generated;
  if (source == ResponseSource::both) {
    const auto together = generate_together(student_, teacher_.model().transformer, prompts, options, needs_.together);
    generated.assign(together.begin(), together.end());
  } else {
    const Transformer& model = of_teacher ? teacher_.model().transformer : student_;
    generated = generate(model, prompts, options, [&](size_t i, int32_t) { return --left[i] > 0; });
  }
  for (size_t k = 0; k < asked.size(); ++k) {
    Response& response = responses[asked[k]];
    std::vector<int32_t> ids = std::move(generated[k].ids);
    std::vector<double> logps = std::move(generated[k].sampler_logps);
    if (of_teacher && setup_.for_teacher) {  // its text in the student's tokens; log-probabilities are not carried over
      response.teacher_tokens = ids;
      ids = setup_.student_tokenizer->encode(teacher_.model().text().decode(ids, /*skip_special=*/true), false);
      if (generated[k].stopped && !setup_.stop_ids.empty()) ids.push_back(setup_.stop_ids.front());
      logps.assign(ids.size(), 0);
    }
    response.tokens.insert(response.tokens.end(), ids.begin(), ids.end());
    auto& numbers = response.numbers["sampler_logps"];
    numbers.insert(numbers.end(), logps.begin(), logps.end());
  }
  return responses;
}

std::vector<double> DistillationTask::scores(std::span<const Response> responses) const {
  if (!reward_) throw std::logic_error("a recipe that asks for scores must say of which reward");
  if (setup_.student_tokenizer == nullptr) fail("option --reward: rewards read text, and the model has no tokenizer");
  std::vector<PromptedResponse> texts;
  for (const Response& r : responses)
    texts.push_back({.prompt = training_.examples[static_cast<size_t>(r.example)].prompt,
                     .response = setup_.student_tokenizer->decode_text(r.tokens, /*skip_special=*/true),
                     .tokens = std::ssize(r.tokens)});
  return (*reward_)(texts);
}

/// The teacher's likeliest response, or of its beams the one most like the data's.
Response DistillationTask::beam_response(int64_t example) const {
  const ResponseSampling& by = needs_.of_teacher_by;
  const int64_t most = by.max_new_tokens > 0 ? by.max_new_tokens : setup_.response_tokens;
  if (setup_.for_teacher) fail("option --beams: a teacher of another tokenizer is sampled; take 1");
  const std::vector<Beam> beams = beam_search(teacher_.model().transformer, prompt(example),
                                              {.num_beams = by.beams,
                                               .max_new_tokens = most,
                                               .length_penalty = 0,
                                               .num_return = by.beams,
                                               .end_token = setup_.stop_ids.empty() ? -1 : setup_.stop_ids.front(),
                                               .vocabulary = setup_.vocabulary});
  if (beams.empty()) fail("{}: beam search found no response", describe(std::span(&example, 1)));
  size_t chosen = 0;
  if (by.interpolate) {
    const std::vector<int32_t> own = data({{example}})[0].tokens;
    std::vector<double> similarity;
    for (const Beam& beam : beams) similarity.push_back(rouge_l(beam.tokens, own));
    chosen = most_similar(similarity);
  }
  return {.example = example, .tokens = beams[chosen].tokens, .source = ResponseSource::teacher};
}

std::vector<Response> DistillationTask::own_responses(std::span<const int64_t> examples) {
  if (needs_.refresh == 0) return stored(ResponseSource::student, examples);
  const std::string name = fmt::format("step {}", step_);
  if (needs_.refresh == 1) return draw(ResponseSource::student, examples, name, {});
  std::vector<int64_t> stale;
  for (const int64_t example : examples) {
    const auto found = refreshed_.find(example);
    if (found == refreshed_.end() || step_ - found->second.first >= needs_.refresh) stale.push_back(example);
  }
  for (Response& response : draw(ResponseSource::student, stale, name, {}))
    refreshed_[response.example] = {step_, response};
  std::vector<Response> responses;
  for (const int64_t example : examples) responses.push_back(refreshed_.at(example).second);
  return responses;
}

std::vector<Response> DistillationTask::stored(ResponseSource source, std::span<const int64_t> examples) {
  auto& all = stored_[source];
  std::vector<int64_t> missing;
  std::vector<uint64_t> streams;
  for (const int64_t example : examples) {
    if (all.contains(example)) continue;
    missing.push_back(example), streams.push_back(static_cast<uint64_t>(example));
  }
  if (!missing.empty()) {
    if (source == ResponseSource::student && step_ > 0)
      throw std::logic_error("the untrained student's responses are asked for after it was trained");
    for (Response& response : drawn(source, missing, "stored", {}, streams)) all[response.example] = response;
  }
  std::vector<Response> responses;
  for (const int64_t example : examples) responses.push_back(all.at(example));
  return responses;
}

void DistillationTask::prepare(const std::filesystem::path& folder, std::span<const int64_t> examples, int64_t steps,
                               const std::function<void(int64_t, int64_t)>& progress) {
  steps_ = steps;
  std::vector<ResponseSource> wanted;
  if (needs_.draws_from_teacher() && !needs_.fresh_teacher) wanted.push_back(ResponseSource::teacher);
  if (needs_.draws_from_student() && needs_.refresh == 0) wanted.push_back(ResponseSource::student);
  const std::filesystem::path file = folder / responses_name;
  if (!folder.empty() && std::filesystem::exists(file)) {
    read_jsonl(file, [&](int64_t, const Json& row) {
      Response response{.example = row.at("example").get<int64_t>(),
                        .tokens = row.at("tokens").get<std::vector<int32_t>>(),
                        .numbers = row.at("numbers").get<std::map<std::string, std::vector<double>>>(),
                        .teacher_tokens = row.at("teacher_tokens").get<std::vector<int32_t>>()};
      response.source = row.at("source") == "teacher" ? ResponseSource::teacher : ResponseSource::student;
      stored_[response.source][response.example] = response;
    });
  }
  const auto total = static_cast<int64_t>(wanted.size() * examples.size());
  int64_t done = 0;
  for (const ResponseSource source : wanted) {
    for (size_t first = 0; first < examples.size(); first += static_cast<size_t>(setup_.batch_size)) {
      const auto part =
          examples.subspan(first, std::min(examples.size() - first, static_cast<size_t>(setup_.batch_size)));
      std::vector<int64_t> missing;
      for (const int64_t example : part) {
        if (!stored_[source].contains(example)) missing.push_back(example);
      }
      const std::vector<Response> made = stored(source, missing);
      if (!folder.empty() && !made.empty() && processes().first()) {
        JsonlWriter writer(file);
        for (const Response& r : made)
          writer.append({{"example", r.example},
                         {"line", training_.examples[static_cast<size_t>(r.example)].line},
                         {"source", source_name(r.source)},
                         {"tokens", r.tokens},
                         {"numbers", r.numbers},
                         {"teacher_tokens", r.teacher_tokens},
                         {"text", setup_.student_tokenizer != nullptr
                                      ? Json(setup_.student_tokenizer->decode_text(r.tokens, true))
                                      : Json()}});
      }
      progress(done += std::ssize(part), total);
    }
  }
  if (recipe_.before_run) {
    DistillationStep now = context(examples);
    recipe_.before_run(now, options_);
  }
}

// Rows.

Sequence DistillationTask::sequence_of(const Response& response) const {
  Sequence sequence{.ids = prompt(response.example)};
  sequence.response_begin = std::ssize(sequence.ids);
  sequence.ids.insert(sequence.ids.end(), response.tokens.begin(), response.tokens.end());
  return sequence;
}

Sequence DistillationTask::teacher_sequence(const Response& response) const {
  const Example& example = training_.examples[static_cast<size_t>(response.example)];
  if (response.teacher_tokens.empty()) {
    const bool own = response.source == ResponseSource::data;
    return setup_.for_teacher(example, own ? example.text : setup_.student_tokenizer->decode(response.tokens, true));
  }
  Sequence sequence{.ids = teacher_prompt(response.example)};
  sequence.response_begin = std::ssize(sequence.ids);
  sequence.ids.insert(sequence.ids.end(), response.teacher_tokens.begin(), response.teacher_tokens.end());
  return sequence;
}

namespace {

std::vector<const Sequence*> pointers(const std::vector<Sequence>& sequences) {
  std::vector<const Sequence*> all;
  for (const Sequence& sequence : sequences) all.push_back(&sequence);
  return all;
}

/// [B T] which of the M counted tokens stands at each place; 0 beyond a response's end, where nothing counts.
Tensor places_of(const ResponseBatch& batch) {
  return padded(at::arange(batch.labels.numel(), at::kLong), batch.counts).reshape(-1);
}

std::vector<Tensor> spread_layers(const std::vector<Tensor>& layers, const ResponseBatch& batch, const Tensor& places) {
  std::vector<Tensor> spread;
  for (const Tensor& layer : layers) spread.push_back(layer.index_select(0, batch.rows.index_select(0, places)));
  return spread;
}

}  // namespace

void DistillationTask::fill_student(Responses& rows, const ResponseBatch& batch, const Tensor& places) const {
  std::vector<Tensor> layers;
  const Tensor hidden = student_.hidden(batch.tokens, AdapterUse::on, needs_.layers ? &layers : nullptr);
  rows.student = student_.head_rows(hidden.index_select(0, batch.rows.index_select(0, places)));
  rows.student.vocabulary = std::min(setup_.vocabulary, student_.config.vocabulary_size);
  rows.student_layers = spread_layers(layers, batch, places);
}

void DistillationTask::fill_teacher(Responses& rows, const ResponseBatch& batch, const Tensor& places,
                                    std::span<const Response> responses) const {
  const at::NoGradGuard no_grad;
  ResponseBatch other = batch;
  Tensor at = places;
  std::vector<Sequence> sequences;
  int64_t vocabulary = setup_.vocabulary;
  if (setup_.for_teacher) {
    for (const Response& response : responses) sequences.push_back(teacher_sequence(response));
    other = response_batch(pointers(sequences));
    at = places_of(other);
    rows.teacher_labels = padded(other.labels, other.counts);
    rows.teacher_mask = padding_mask(other.counts);
    vocabulary = teacher_.vocabulary();
  }
  if (needs_.layers) {
    std::vector<Tensor> layers;
    const Transformer& model = teacher_.model().transformer;
    const Tensor hidden = model.hidden(other.tokens, AdapterUse::on, &layers);
    rows.teacher = model.head_rows(hidden.index_select(0, other.rows.index_select(0, at)));
    rows.teacher.vocabulary = std::min(vocabulary, model.config.vocabulary_size);
    rows.teacher_layers = spread_layers(layers, other, at);
    return;
  }
  if (teacher_.recorded()) rows.teacher_truncated = teacher_.record().store->format().k;
  rows.teacher = teacher_.rows(other, rows.lines, vocabulary, student_.dtype());
  rows.teacher.hidden = rows.teacher.hidden.index_select(0, at);
}

Responses DistillationTask::rows_of(std::span<const Response> responses, const Side& side, bool with_teacher,
                                    Rowing rowing) const {
  const at::AutoGradMode mode(rowing == Rowing::training && at::GradMode::is_enabled());
  std::vector<Sequence> sequences;
  Responses rows;
  rows.tokens_in_step = side.tokens, rows.sequences_in_step = side.sequences;
  std::vector<double> weights;
  for (const Response& response : responses) {
    sequences.push_back(sequence_of(response));
    const auto i = static_cast<size_t>(response.example);
    rows.lines.push_back(i < training_.examples.size() ? training_.examples[i].line
                                                       : text_.examples[i - training_.examples.size()].line);
    rows.sources.push_back(response.source);
    weights.push_back(weight_of(response));
  }
  const ResponseBatch batch = response_batch(pointers(sequences));
  const Tensor places = places_of(batch);
  rows.labels = padded(batch.labels, batch.counts);
  rows.mask = padding_mask(batch.counts);
  if (std::ranges::any_of(weights, [](double w) { return w != 1; })) rows.weight = at::tensor(weights, at::kDouble);
  fill_student(rows, batch, places);
  if (with_teacher) fill_teacher(rows, batch, places, responses);

  std::map<std::string, std::vector<double>> numbers;
  for (size_t i = 0; i < responses.size(); ++i) {
    for (const auto& [name, values] : responses[i].numbers) {
      if (std::ssize(values) < batch.counts[i]) throw std::logic_error("a response has fewer numbers than tokens");
      if (i > 0 && !numbers.contains(name)) continue;  // only what all have
      numbers[name].insert(numbers[name].end(), values.end() - batch.counts[i], values.end());
    }
  }
  for (const auto& [name, values] : numbers) {
    if (std::ssize(values) == batch.labels.numel())
      rows.numbers[name] = padded(at::tensor(values, at::kDouble), batch.counts);
  }
  if (needs_.scores && rowing == Rowing::training) rows.scores = at::tensor(scores(responses), at::kDouble);
  if (needs_.similarity) {
    std::vector<double> similarity;
    for (const Response& response : responses) {
      const bool is_text = response.example >= examples();
      similarity.push_back(is_text ? 0 : rouge_l(response.tokens, data({{response.example}})[0].tokens));
    }
    rows.similarity = at::tensor(similarity, at::kDouble);
  }
  if (needs_.other_model) {
    const at::NoGradGuard no_grad;
    const Rows other = setup_.other_model->head_rows(response_hidden(*setup_.other_model, batch));
    rows.other_logps = padded(label_logps(other, batch.labels), batch.counts);
  }
  return rows;
}

const Tokenizer* DistillationTask::teacher_tokenizer() const {
  const bool own = !teacher_.recorded() && teacher_.models()[0].tokenizer;
  return own ? &*teacher_.models()[0].tokenizer : setup_.student_tokenizer;
}

DistillationBatch DistillationTask::batch_of(size_t first, size_t count, Rowing rowing) const {
  DistillationBatch batch;
  const auto part = [&](const Side& side) { return std::span(side.responses).subspan(first, count); };
  static_cast<Responses&>(batch) = rows_of(part(main_), main_, needs_.teacher, rowing);
  const auto beside = [&](bool needed, const Side& side, Responses& into) {
    if (!needed) return;
    const auto same = [](const Response& a, const Response& b) {
      return a.example == b.example && a.tokens == b.tokens && a.numbers == b.numbers;
    };
    const bool is_main = needs_.teacher == needs_.side_teacher && std::ranges::equal(part(side), part(main_), same);
    into = is_main ? static_cast<const Responses&>(batch) : rows_of(part(side), side, needs_.side_teacher, rowing);
  };
  beside(needs_.data, data_side_, batch.data);
  beside(needs_.of_teacher, teacher_side_, batch.of_teacher);
  beside(needs_.of_student, student_side_, batch.of_student);
  if (needs_.text && !text_side_.responses.empty())
    batch.text = rows_of(part(text_side_), text_side_, needs_.text_teacher, rowing);
  batch.modules = module_tensors_;
  batch.state = const_cast<DistillationState*>(&state_);
  batch.step = step_, batch.steps = steps_, batch.seed = setup_.seed;
  batch.student_tokenizer = student_tokenizer(), batch.teacher_tokenizer = teacher_tokenizer();
  return batch;
}

void DistillationTask::each_batch(std::span<const Response> responses,
                                  const std::function<void(const DistillationBatch&)>& f) {
  const bool of_step = responses.data() == main_.responses.data() && responses.size() == main_.responses.size();
  const Side others = of_step ? Side{} : side_of({responses.begin(), responses.end()});
  const auto size = static_cast<size_t>(setup_.batch_size);
  for (size_t first = 0; first < responses.size(); first += size) {
    const size_t count = std::min(size, responses.size() - first);
    if (of_step) {
      f(batch_of(first, count, Rowing::still));
      continue;
    }
    DistillationBatch batch;
    static_cast<Responses&>(batch) = rows_of(responses.subspan(first, count), others, needs_.teacher, Rowing::still);
    batch.modules = module_tensors_, batch.state = &state_, batch.step = step_, batch.steps = steps_;
    batch.seed = setup_.seed, batch.student_tokenizer = setup_.student_tokenizer;
    f(batch);
  }
}

}  // namespace kullback
