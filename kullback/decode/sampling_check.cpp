// The cases of the sampling fixture, row by row.
#include <functional>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/decode/best_of_n.h"
#include "kullback/decode/contrastive.h"
#include "kullback/decode/speculative.h"
#include "kullback/lm/beam_search.h"
#include "kullback/lm/sampling.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

Row row_of(const Tensor& tensor) {
  const Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.const_data_ptr<double>(), plain.const_data_ptr<double>() + plain.numel()};
}

Rows rows_of(const Tensor& tensor) {
  Rows rows;
  for (int64_t i = 0; i < tensor.size(0); ++i) rows.push_back(row_of(tensor[i]));
  return rows;
}

Tensor tensor_of(const Row& row) { return at::tensor(row, at::kDouble); }

Tensor tensor_of(const Rows& rows) {
  std::vector<Tensor> all;
  for (const Row& row : rows) all.push_back(tensor_of(row));
  return at::stack(all);
}

Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

std::vector<int32_t> ids_of(const Tensor& tensor) {
  std::vector<int32_t> ids;
  for (const double id : row_of(tensor)) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

Row kept(const Row& row) {
  Row keep;
  for (const double logit : row) keep.push_back(logit > -std::numeric_limits<double>::infinity());
  return keep;
}

Sampling sampling_of(const CheckCase& c) {
  Sampling s;
  s.temperature = c.option("temperature", s.temperature);
  s.top_k = c.option("top_k", s.top_k);
  const auto ties = c.option<std::string>("ties", "keep");
  if (ties != "keep" && ties != "lowest_id") fail("{}: ties '{}' is neither keep nor lowest_id", c.where(), ties);
  s.ties = ties == "lowest_id" ? Sampling::Ties::lowest_id : Sampling::Ties::keep;
  s.top_p = c.option("top_p", s.top_p);
  s.min_p = c.option("min_p", s.min_p);
  s.typical = c.option("typical", s.typical);
  s.epsilon = c.option("epsilon", s.epsilon);
  s.eta = c.option("eta", s.eta);
  s.min_keep = c.option("min_keep", s.min_keep);
  s.repetition_penalty = c.option("repetition_penalty", s.repetition_penalty);
  s.frequency_penalty = c.option("frequency_penalty", s.frequency_penalty);
  s.presence_penalty = c.option("presence_penalty", s.presence_penalty);
  return s;
}

// One link of the chain, or all of it: each is off unless the case's options say otherwise.
CheckOutputs filter_case(CheckCase& c) {
  const Sampling sampling = sampling_of(c);
  Rows rows = rows_of(c.tensor("logits")), keep, probabilities, histories(rows.size());
  if (c.has("history")) histories = rows_of(c.tensor("history"));
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int32_t> history(histories[i].begin(), histories[i].end());
    filter(rows[i], history, sampling);
    keep.push_back(kept(rows[i]));
    probabilities.push_back(softmax(rows[i]));
  }
  return {{"logits", tensor_of(rows)}, {"keep", tensor_of(keep)}, {"probs", tensor_of(probabilities)}};
}

CheckOutputs greedy_case(CheckCase& c) {
  Row tokens;
  for (const Row& row : rows_of(c.tensor("logits"))) tokens.push_back(arg_max(row));
  return {{"token", tensor_of(tokens)}};
}

CheckOutputs sample_case(CheckCase& c) {
  const Rows rows = rows_of(c.tensor("logits"));
  const Row uniform = row_of(c.tensor("uniform"));
  Row tokens, logps;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t token = draw(softmax(rows[i]), uniform.at(i));
    tokens.push_back(token);
    logps.push_back(log_softmax(rows[i])[static_cast<size_t>(token)]);
  }
  return {{"token", tensor_of(tokens)}, {"logp", tensor_of(logps)}};
}

CheckOutputs gumbel_case(CheckCase& c) {
  const Rows rows = rows_of(c.tensor("logits")), uniform = rows_of(c.tensor("uniform"));
  Row tokens;
  for (size_t i = 0; i < rows.size(); ++i) tokens.push_back(gumbel_draw(rows[i], uniform.at(i)));
  return {{"token", tensor_of(tokens)}};
}

CheckOutputs pipeline_case(CheckCase& c) {
  const Sampling sampling = sampling_of(c);
  const Rows raw = rows_of(c.tensor("logits"));
  const Row uniform = row_of(c.tensor("uniform"));
  Rows keep, probabilities;
  Row tokens, sampler, model;
  for (size_t i = 0; i < raw.size(); ++i) {
    Row row = raw[i];
    if (c.has("logit_bias")) {
      const Row bias = row_of(c.tensor("logit_bias"));
      for (size_t v = 0; v < row.size(); ++v) row[v] += bias.at(v);
    }
    filter(row, c.has("history") ? ids_of(c.tensor("history")[static_cast<int64_t>(i)]) : std::vector<int32_t>{},
           sampling);
    keep.push_back(kept(row));
    probabilities.push_back(softmax(row));
    const auto token = static_cast<size_t>(draw(probabilities.back(), uniform.at(i)));
    tokens.push_back(static_cast<double>(token));
    sampler.push_back(log_softmax(row)[token]);
    model.push_back(log_softmax(raw[i])[token]);
  }
  return {{"keep", tensor_of(keep)},
          {"probs", tensor_of(probabilities)},
          {"token", tensor_of(tokens)},
          {"logp_sampler", tensor_of(sampler)},
          {"logp_model", tensor_of(model)}};
}

// The tables are logits by step, last token and next token.
CheckOutputs beam_case(CheckCase& c) {
  const Tensor table = c.tensor("logits");
  const auto start = c.tensor("start").item<int64_t>();
  const BeamSearchOptions options{.num_beams = c.option<int64_t>("num_beams", 1),
                                  .max_new_tokens = c.option<int64_t>("max_new_tokens", 1),
                                  .length_penalty = c.option("length_penalty", 1.0),
                                  .early_stopping = c.option<int64_t>("early_stopping", 0) != 0,
                                  .num_return = c.option<int64_t>("num_return", 1),
                                  .end_token = c.option<int32_t>("eos", -1)};
  const NextLogps next = [&](const std::vector<std::vector<int32_t>>& sequences) {
    Rows rows;
    for (const std::vector<int32_t>& sequence : sequences) {
      const int64_t last = sequence.empty() ? start : sequence.back();
      rows.push_back(log_softmax(row_of(table[static_cast<int64_t>(sequence.size())][last])));
    }
    return rows;
  };
  const std::vector<Beam> beams = beam_search(next, options);
  size_t longest = 0;
  for (const Beam& beam : beams) longest = std::max(longest, beam.tokens.size());
  Rows tokens;
  Row logps, scores, lengths;
  for (const Beam& beam : beams) {
    Row& row = tokens.emplace_back(beam.tokens.begin(), beam.tokens.end());
    row.resize(longest, -1);
    logps.push_back(beam.logp);
    scores.push_back(beam.score);
    lengths.push_back(static_cast<double>(beam.tokens.size()));
  }
  return {{"tokens", tensor_of(tokens)},
          {"sum_logp", tensor_of(logps)},
          {"score", tensor_of(scores)},
          {"length", tensor_of(lengths)}};
}

CheckOutputs best_of_n_case(CheckCase& c) {
  Row places, rewards;
  for (const Row& row : rows_of(c.tensor("rewards"))) {
    places.push_back(static_cast<double>(best_of(row)));
    rewards.push_back(row[best_of(row)]);
  }
  return {{"index", tensor_of(places)}, {"reward", tensor_of(rewards)}};
}

CheckOutputs best_of_n_law_case(CheckCase& c) {
  const BestOfNLaw law =
      best_of_n_law(row_of(c.tensor("probs")), row_of(c.tensor("reward")), c.option<int64_t>("n", 1));
  return {{"law", tensor_of(law.law)},
          {"kl", number(law.kl)},
          {"kl_bound", number(law.kl_bound)},
          {"expected_reward", number(law.expected_reward)}};
}

CheckOutputs contrastive_case(CheckCase& c) {
  ContrastiveOptions options;
  options.alpha = c.option("alpha", options.alpha);
  if (c.options().contains("beta") && !c.options().at("beta").is_null()) options.beta = c.option("beta", 0.0);
  options.amateur_temperature = c.option("amateur_temperature", options.amateur_temperature);
  options.amateur_floor = c.option("amateur_floor", options.amateur_floor);
  const Rows expert = rows_of(c.tensor("expert_logits")), amateur = rows_of(c.tensor("amateur_logits"));
  Rows keep, scores, probabilities;
  Row tokens;
  for (size_t i = 0; i < expert.size(); ++i) {
    const Row row = scores.emplace_back(contrastive_scores(expert[i], amateur.at(i), options));
    keep.push_back(kept(row));
    tokens.push_back(arg_max(row));
    Row scaled = row;
    scale_by_temperature(scaled, c.option("temperature", 1.0));
    probabilities.push_back(softmax(scaled));
  }
  return {{"keep", tensor_of(keep)},
          {"score", tensor_of(scores)},
          {"probs", tensor_of(probabilities)},
          {"token", tensor_of(tokens)}};
}

CheckOutputs speculative_case(CheckCase& c) {
  const SpeculativeRound round = speculative_round(
      ids_of(c.tensor("draft_tokens")), rows_of(c.tensor("draft_probs")), rows_of(c.tensor("target_probs")),
      row_of(c.tensor("accept_uniform")), c.tensor("final_uniform").item<double>());
  return {{"accepted", number(static_cast<double>(round.accepted))},
          {"final_probs", tensor_of(round.final_law)},
          {"tokens", tensor_of(Row(round.tokens.begin(), round.tokens.end()))},
          {"acceptance", tensor_of(round.acceptance)}};
}

CheckOutputs speculative_law_case(CheckCase& c) {
  Rows draft = rows_of(c.tensor("draft_logits")), target = rows_of(c.tensor("target_logits"));
  for (Rows* rows : {&draft, &target}) {
    for (Row& row : *rows) row = softmax(row);
  }
  const auto start = static_cast<size_t>(c.tensor("start").item<int64_t>());
  return {{"residual", tensor_of(residual_law(target.at(start), draft.at(start)))},
          {"acceptance", number(acceptance_rate(target.at(start), draft.at(start)))},
          {"first_token_law", tensor_of(speculative_first_token_law(target.at(start), draft.at(start)))},
          {"target", tensor_of(target.at(start))},
          {"expected_tokens", number(expected_round_length(target, draft, start, c.option<int64_t>("gamma", 4)))}};
}

const char* const filters[] = {"temperature", "top_k", "top_p", "min_p", "typical", "epsilon", "eta", "penalty"};
const std::vector<RegisteredCheck> filter_checks = [] {
  std::vector<RegisteredCheck> checks;
  for (const char* op : filters) checks.push_back({"sampling", op, filter_case});
  return checks;
}();
const RegisteredCheck checks[] = {{"sampling", "greedy", greedy_case},
                                  {"sampling", "sample", sample_case},
                                  {"sampling", "gumbel", gumbel_case},
                                  {"sampling", "pipeline", pipeline_case},
                                  {"sampling", "beam", beam_case},
                                  {"sampling", "best_of_n", best_of_n_case},
                                  {"sampling", "best_of_n_law", best_of_n_law_case},
                                  {"sampling", "contrastive", contrastive_case},
                                  {"sampling", "speculative", speculative_case},
                                  {"sampling", "speculative_law", speculative_law_case}};

}  // namespace
}  // namespace kullback
