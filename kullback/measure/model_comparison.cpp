#include "kullback/measure/model_comparison.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/lm/generate.h"
#include "kullback/measure/kl_estimators.h"
#include "kullback/text/token_class.h"
#include "kullback/train/places.h"
#include "kullback/train/response_batch.h"

namespace kullback {

using at::Tensor;

const std::vector<ComparedMeasure>& compared_measures() {
  static const std::vector<ComparedMeasure> all{{"kl", "KL(A || B)", "nats/token"},
                                                {"reverse-kl", "KL(B || A)", "nats/token"},
                                                {"js", "Jensen-Shannon", "nats/token"},
                                                {"tv", "total variation", ""},
                                                {"chi2", "chi2(A || B)", ""},
                                                {"hellinger", "squared Hellinger", ""},
                                                {"renyi:2", "Renyi of order 2, A from B", "nats/token"}};
  return all;
}

ComparedSide compared_side(const Reference& model, int64_t vocabulary) {
  const int64_t rows = model.model->config.vocabulary_size;
  const int64_t real = vocabulary == 0 ? rows : std::min(vocabulary, rows);
  return {.rows =
              [model, real](const ResponseBatch& batch, const std::vector<int64_t>&) {
                Rows made = reference_rows(model, batch);
                made.vocabulary = real;
                return made;
              },
          .vocabulary = real};
}

ComparedSide compared_side(std::shared_ptr<const Teacher> recorded) {
  const int64_t vocabulary = recorded->vocabulary();
  return {.rows =
              [recorded, vocabulary](const ResponseBatch& batch, const std::vector<int64_t>& lines) {
                return recorded->rows(batch, lines, vocabulary, at::kFloat);
              },
          .vocabulary = vocabulary};
}

namespace {

void check_vocabularies(const ComparedSide& a, const ComparedSide& b) {
  if (a.vocabulary != b.vocabulary)
    fail("the models have vocabularies of {} and {}; they must share a tokenizer", a.vocabulary, b.vocabulary);
}

/// Both sides at a batch's tokens.
struct BothSides {
  ResponseBatch batch;
  HeadStatistics of_a;             // with the divergences
  Tensor b_logps, a_says, b_says;  // [M] each
};

BothSides both_sides(const ComparedSide& a, const ComparedSide& b, const std::vector<const Example*>& responses) {
  std::vector<const Sequence*> sequences;
  std::vector<int64_t> lines;
  for (const Example* one : responses) sequences.push_back(&one->sequence), lines.push_back(one->line);
  BothSides both{.batch = response_batch(sequences), .of_a = {}, .b_logps = {}, .a_says = {}, .b_says = {}};
  if (both.batch.labels.numel() == 0) return both;
  HeadRequest wanted{.labels = both.batch.labels, .logps = true, .scores = {}, .top_k = 1, .divergences = {}};
  const Rows rows_a = a.rows(both.batch, lines), rows_b = b.rows(both.batch, lines);
  const HeadStatistics of_b = head_statistics(rows_b, wanted);
  for (const ComparedMeasure& m : compared_measures()) wanted.divergences.push_back(divergence(m.figure).from_policy());
  both.of_a = head_statistics(rows_a, rows_b, wanted);
  both.b_logps = of_b.logps;
  both.a_says = both.of_a.top_ids.flatten(), both.b_says = of_b.top_ids.flatten();
  return both;
}

Figures figures_of(const BothSides& both) {
  Figures row;
  for (size_t n = 0; n < compared_measures().size(); ++n)
    row[compared_measures()[n].figure] = total(both.of_a.divergences[n]);
  row["agreement"] = total((both.a_says == both.b_says).to(at::kDouble));
  row["loss_a"] = total(-both.of_a.logps), row["loss_b"] = total(-both.b_logps);
  return row;
}

std::vector<double> numbers(const Tensor& values) {
  const Tensor flat = values.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

void add_tokens(const BothSides& both, std::vector<TokenDifference>& all, int64_t row) {
  const std::vector<double> kl = numbers(both.of_a.divergences[0]), reverse = numbers(both.of_a.divergences[1]),
                            a_logps = numbers(both.of_a.logps), b_logps = numbers(both.b_logps),
                            labels = numbers(both.batch.labels), a_says = numbers(both.a_says),
                            b_says = numbers(both.b_says);
  for (size_t k = 0; k < kl.size(); ++k) {
    all.push_back({.row = row,
                   .place = static_cast<int64_t>(k),
                   .token = static_cast<int32_t>(labels[k]),
                   .kl = kl[k],
                   .reverse_kl = reverse[k],
                   .a_says = static_cast<int32_t>(a_says[k]),
                   .b_says = static_cast<int32_t>(b_says[k]),
                   .a_logp = a_logps[k],
                   .b_logp = b_logps[k]});
  }
}

}  // namespace

ModelComparison compare_models(const ComparedSide& a, const ComparedSide& b, const std::vector<Example>& responses,
                               const std::function<void(int64_t, int64_t)>& progress) {
  check_vocabularies(a, b);
  const at::NoGradGuard no_grad;
  ModelComparison result{.rows = {}, .by_place = {}, .tokens = {}};
  for (size_t i = 0; i < responses.size(); ++i) {
    const BothSides both = both_sides(a, b, {&responses[i]});
    Figures row, places;
    if (both.batch.labels.numel() > 0) {
      row = figures_of(both);
      add_tokens(both, result.tokens, static_cast<int64_t>(i));
      for (const size_t n : {0, 1}) add_by_place(compared_measures()[n].figure, both.of_a.divergences[n], places);
    }
    result.rows.push_back(std::move(row));
    result.by_place.push_back(std::move(places));
    if (progress) progress(static_cast<int64_t>(i) + 1, std::ssize(responses));
  }
  return result;
}

std::vector<Figures> figures_by_class(const ModelComparison& comparison, const std::vector<Example>& responses,
                                      const Tokenizer& tokenizer) {
  std::vector<Figures> rows(responses.size());
  std::vector<std::vector<TokenClass>> classes;
  for (const Example& one : responses) classes.push_back(classified(tokenizer, one.sequence.ids));
  for (const TokenDifference& t : comparison.tokens) {
    const auto row = static_cast<size_t>(t.row);
    const int64_t begin = std::max<int64_t>(responses[row].sequence.response_begin, 1);  // as response_batch counts
    const std::string name = token_class_name(classes[row][static_cast<size_t>(begin + t.place)]);
    add(rows[row], {{"kl " + name, {t.kl, 1}}, {"reverse-kl " + name, {t.reverse_kl, 1}}});
  }
  return rows;
}

std::vector<std::vector<Example>> drawn_responses(const Model& model, AdapterUse use,
                                                  const std::vector<Example>& examples, const DrawOptions& options,
                                                  const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::vector<Example>> drawn;
  for (size_t i = 0; i < examples.size(); ++i) {
    const Sequence& given = examples[i].sequence;
    const std::vector<int32_t> prompt(given.ids.begin(), given.ids.begin() + given.response_begin);
    if (prompt.empty()) continue;
    GenerationOptions generation{.sampling = {},
                                 .max_new_tokens = options.max_tokens,
                                 .stop_ids = model.generation.stop_ids,
                                 .seed = options.seed,
                                 .streams = {},
                                 .adapter = use};
    for (int64_t d = 0; d < options.draws; ++d)
      generation.streams.push_back(static_cast<uint64_t>(i) * 1000003 + static_cast<uint64_t>(d));
    const std::vector<std::vector<int32_t>> same(static_cast<size_t>(options.draws), prompt);
    std::vector<Example> responses;
    for (const Generated& one : generate(model.transformer, same, generation)) {
      Example response{.line = examples[i].line,
                       .sequence = {.ids = prompt, .response_begin = given.response_begin},
                       .prompt = examples[i].prompt,
                       .text = model.text().decode_text(one.ids, /*skip_special=*/true)};
      response.sequence.ids.insert(response.sequence.ids.end(), one.ids.begin(), one.ids.end());
      responses.push_back(std::move(response));
    }
    drawn.push_back(std::move(responses));
    if (progress) progress(static_cast<int64_t>(i) + 1, std::ssize(examples));
  }
  return drawn;
}

std::vector<Figures> compare_on_samples(const ComparedSide& a, const ComparedSide& b,
                                        const std::vector<std::vector<Example>>& drawn,
                                        const std::function<void(int64_t, int64_t)>& progress) {
  check_vocabularies(a, b);
  const at::NoGradGuard no_grad;
  std::vector<Figures> rows;
  for (const std::vector<Example>& of_prompt : drawn) {
    std::vector<const Example*> pointers;
    for (const Example& one : of_prompt) pointers.push_back(&one);
    const BothSides both = both_sides(a, b, pointers);
    Figures row = figures_of(both);
    const auto shaped = [&](const Tensor& values) { return padded(values.to(at::kDouble), both.batch.counts); };
    const Tensor logps_a = shaped(both.of_a.logps), logps_b = shaped(both.b_logps),
                 exact = shaped(both.of_a.divergences[0]), mask = padding_mask(both.batch.counts);
    for (const auto& [name, estimator] : {std::pair{"k1", KlEstimateOptions::Estimator::k1},
                                          {"k3", KlEstimateOptions::Estimator::k3},
                                          {"rb", KlEstimateOptions::Estimator::rb}})
      row[name] = total(kl_estimate(logps_a, logps_b, mask, {.estimator = estimator}, {}, exact).per_sequence);
    row["length"] = total(at::tensor(both.batch.counts, at::kDouble));
    rows.push_back(std::move(row));
    if (progress) progress(std::ssize(rows), std::ssize(drawn));
  }
  return rows;
}

}  // namespace kullback
