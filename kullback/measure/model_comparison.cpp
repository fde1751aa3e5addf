#include "kullback/measure/model_comparison.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/lm/generate.h"
#include "kullback/measure/kl_estimators.h"
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

namespace {

void check_vocabularies(const Reference& a, const Reference& b) {
  if (a.model->config.vocabulary_size != b.model->config.vocabulary_size) {
    fail("the models have vocabularies of {} and {}; they must share a tokenizer", a.model->config.vocabulary_size,
         b.model->config.vocabulary_size);
  }
}

}  // namespace

ModelComparison compare_models(const Reference& a, const Reference& b, const std::vector<Example>& responses,
                               const std::function<void(int64_t, int64_t)>& progress) {
  check_vocabularies(a, b);
  const at::NoGradGuard no_grad;
  ModelComparison result{.rows = {}, .by_place = {}, .tokens = {}};
  HeadRequest wanted{.labels = {}, .logps = true, .scores = {}, .top_k = 1, .divergences = {}};
  for (const ComparedMeasure& m : compared_measures()) wanted.divergences.push_back(divergence(m.figure).from_policy());
  for (size_t i = 0; i < responses.size(); ++i) {
    const Sequence* sequence = &responses[i].sequence;
    const ResponseBatch batch = response_batch({&sequence, 1});
    if (batch.labels.numel() == 0) continue;
    const Rows of_a = reference_rows(a, batch), of_b = reference_rows(b, batch);
    wanted.labels = batch.labels;
    const HeadStatistics s = head_statistics(of_a, of_b, wanted);
    const HeadStatistics t =
        head_statistics(of_b, {.labels = batch.labels, .logps = true, .scores = {}, .top_k = 1, .divergences = {}});
    Figures row, places;
    for (size_t n = 0; n < s.divergences.size(); ++n) row[compared_measures()[n].figure] = total(s.divergences[n]);
    const Tensor a_says = s.top_ids.flatten(), b_says = t.top_ids.flatten();
    row["agreement"] = total((a_says == b_says).to(at::kDouble));
    row["loss_a"] = total(-s.logps), row["loss_b"] = total(-t.logps);
    for (int64_t k = 0; k < batch.labels.numel(); ++k) {
      const auto at = [k](const Tensor& values) { return values[k].item<double>(); };
      result.tokens.push_back({.row = static_cast<int64_t>(result.rows.size()),
                               .place = k,
                               .token = static_cast<int32_t>(batch.labels[k].item<int64_t>()),
                               .kl = at(s.divergences[0]),
                               .a_says = static_cast<int32_t>(a_says[k].item<int64_t>()),
                               .b_says = static_cast<int32_t>(b_says[k].item<int64_t>()),
                               .a_logp = at(s.logps),
                               .b_logp = at(t.logps)});
    }
    for (const size_t n : {0, 1}) add_by_place(compared_measures()[n].figure, s.divergences[n], places);
    result.rows.push_back(std::move(row));
    result.by_place.push_back(std::move(places));
    progress(static_cast<int64_t>(i) + 1, std::ssize(responses));
  }
  return result;
}

std::vector<Figures> sampled_sequence_kl(const Model& a_model, const Reference& a, const Reference& b,
                                         const std::vector<Example>& prompts, int64_t draws, int64_t max_tokens,
                                         uint64_t seed, const std::function<void(int64_t, int64_t)>& progress) {
  check_vocabularies(a, b);
  const at::NoGradGuard no_grad;
  std::vector<Figures> rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Sequence& given = prompts[i].sequence;
    const std::vector<int32_t> prompt(given.ids.begin(), given.ids.begin() + given.response_begin);
    if (prompt.empty()) continue;
    GenerationOptions options{.sampling = {},
                              .max_new_tokens = max_tokens,
                              .stop_ids = a_model.generation.stop_ids,
                              .seed = seed,
                              .streams = {},
                              .adapter = a.use};
    for (int64_t d = 0; d < draws; ++d)
      options.streams.push_back(static_cast<uint64_t>(i) * 1000003 + static_cast<uint64_t>(d));
    const std::vector<std::vector<int32_t>> same(static_cast<size_t>(draws), prompt);
    std::vector<Sequence> sequences;
    for (const Generated& one : generate(*a.model, same, options)) {
      Sequence sequence{.ids = prompt, .response_begin = given.response_begin};
      sequence.ids.insert(sequence.ids.end(), one.ids.begin(), one.ids.end());
      sequences.push_back(std::move(sequence));
    }
    std::vector<const Sequence*> pointers;
    for (const Sequence& s : sequences) pointers.push_back(&s);
    const ResponseBatch batch = response_batch(pointers);
    const Rows of_a = reference_rows(a, batch), of_b = reference_rows(b, batch);
    const auto shaped = [&](const Tensor& values) { return padded(values.to(at::kDouble), batch.counts); };
    const Tensor logps_a = shaped(label_logps(of_a, batch.labels)), logps_b = shaped(label_logps(of_b, batch.labels)),
                 exact = shaped(exact_kl(of_a, of_b)), mask = padding_mask(batch.counts);
    Figures row;
    for (const auto& [name, estimator] : {std::pair{"sampled k1", KlEstimateOptions::Estimator::k1},
                                          {"sampled k3", KlEstimateOptions::Estimator::k3},
                                          {"sampled rb", KlEstimateOptions::Estimator::rb}}) {
      const KlEstimate e = kl_estimate(logps_a, logps_b, mask, {.estimator = estimator}, {}, exact);
      row[name] = total(e.per_sequence);
    }
    row["sampled length"] = total(at::tensor(batch.counts, at::kDouble));
    rows.push_back(std::move(row));
    progress(static_cast<int64_t>(i) + 1, std::ssize(prompts));
  }
  return rows;
}

}  // namespace kullback
