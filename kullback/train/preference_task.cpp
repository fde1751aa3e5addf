#include "kullback/train/preference_task.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/random.h"
#include "kullback/io/files.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/read.h"
#include "kullback/lm/save.h"
#include "kullback/train/processes.h"
#include "kullback/train/weight_average.h"

namespace kullback {

using at::Tensor;

namespace {

/// The two sequences of every pair: all chosen, then all rejected.
std::vector<const Sequence*> both_sides(const std::vector<const PreferencePair*>& pairs) {
  std::vector<const Sequence*> sequences;
  for (const PreferencePair* pair : pairs) sequences.push_back(&pair->chosen);
  for (const PreferencePair* pair : pairs) sequences.push_back(&pair->rejected);
  return sequences;
}

}  // namespace

/// A batch of pairs with all that is known of it.
struct PreferenceTask::Scored {
  PreferenceBatch batch;
  std::vector<int64_t> counts;   // counted tokens of each sequence: chosen, then rejected
  std::vector<Tensor> measured;  // [M] exact, at every counted token, as distance_names say; empty unless measured
  std::vector<Tensor> limited;   // [M] the limits' divergences
};

PreferenceTask::PreferenceTask(const Transformer& policy, Reference reference, const Method& method,
                               const void* options, PreferenceData training, PreferenceData held_out,
                               std::vector<int32_t> prefix, Limits limits)
    : policy_(policy),
      reference_(reference),
      recipe_(std::any_cast<PreferenceRecipe>(method.recipe)),
      options_(options),
      needs_(recipe_.needs(options)),
      training_(std::move(training)),
      held_out_(std::move(held_out)),
      prefix_(std::move(prefix)),
      training_cache_(training_.pairs.size()),
      held_out_cache_(held_out_.pairs.size()),
      limits_(std::move(limits)) {
  if (needs_.hidden_layer > policy.config.layers)
    fail("option --layer: there is no block {} in a model of {}", needs_.hidden_layer, policy.config.layers);
  if (needs_.hidden_width > 0 && needs_.hidden_width != policy.config.hidden_size)
    fail("method {}, with these options, reads hidden states of width {}; the model's are of width {}", method.name,
         needs_.hidden_width, policy.config.hidden_size);
  for (const PreferenceData* data : {&training_, &held_out_}) {
    for (const PreferencePair& pair : data->pairs) {
      if (!needs_.unpaired && !(pair.has_chosen && pair.has_rejected))
        fail("{}:{}: one labelled response alone, where {} needs a chosen and a rejected one (kto takes such rows)",
             data->path, pair.line, method.name);
    }
  }
  if (!needs_.moving_reference) return;
  moving_ = reference_.model->clone();
  if (reference_.use == AdapterUse::off) remove_lora(*moving_);
  merge_lora(*moving_);
}

void PreferenceTask::after_step(int64_t step, int64_t steps, Figures& figures) {
  limits_.after_step(figures);
  const auto& rule = needs_.moving_reference;
  if (!rule || !rule->now(step, steps)) return;
  // The mean of two adapters' products is not the product of their means: whole weights are averaged. The copy shares all
  // but the merged ones.
  Transformer whole = policy_;
  merge_lora(whole);
  move_towards(moving_->parameters(), whole.parameters(), rule->weight);
  held_out_cache_.assign(held_out_cache_.size(), {});
}

std::vector<NamedTensor> PreferenceTask::kept() {
  if (!moving_) return {};
  std::vector<NamedTensor> all = moving_->parameters();
  for (NamedTensor& t : all) t.name = "moving_reference." + t.name;
  return all;
}

std::string PreferenceTask::describe(std::span<const int64_t> examples) const {
  std::vector<int64_t> lines;
  for (const int64_t example : examples) lines.push_back(training_.pairs[static_cast<size_t>(example)].line);
  return described_lines(std::move(lines), training_.path);
}

void PreferenceTask::fill_reference(const std::vector<const PreferencePair*>& pairs,
                                    const std::vector<Cached*>& caches) const {
  std::vector<Sequence> without_prompt;
  std::vector<const Sequence*> sequences;
  std::vector<Tensor*> into;
  for (const bool chosen : {true, false}) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      Tensor& place = chosen ? caches[i]->chosen : caches[i]->rejected;
      if (place.defined()) continue;
      sequences.push_back(chosen ? &pairs[i]->chosen : &pairs[i]->rejected);
      into.push_back(&place);
    }
  }
  if (sequences.empty()) return;
  if (needs_.reference_without_prompt) {
    for (const Sequence* sequence : sequences) {
      Sequence bare{.ids = prefix_, .response_begin = static_cast<int64_t>(prefix_.size())};
      bare.ids.insert(bare.ids.end(), sequence->ids.begin() + sequence->response_begin, sequence->ids.end());
      without_prompt.push_back(std::move(bare));
    }
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i] = &without_prompt[i];
  }
  const ResponseBatch batch = response_batch(sequences);
  const Tensor logps = label_logps(reference_rows(loss_reference(), batch), batch.labels);
  const std::vector<Tensor> parts = logps.split_with_sizes(batch.counts);
  for (size_t i = 0; i < parts.size(); ++i) *into[i] = parts[i].clone();  // not a view of the whole batch
}

/// Each prompt with the response so many rows on, under both models, without a gradient.
Side PreferenceTask::mismatched(const std::vector<const Sequence*>& sequences) const {
  const auto count = static_cast<int64_t>(sequences.size());
  std::vector<Sequence> mixed;
  for (int64_t i = 0; i < count; ++i) {
    const Sequence& own = *sequences[static_cast<size_t>(i)];
    const Sequence& other = *sequences[static_cast<size_t>(((i + needs_.mismatched) % count + count) % count)];
    Sequence sequence{.ids = {own.ids.begin(), own.ids.begin() + own.response_begin},
                      .response_begin = own.response_begin};
    sequence.ids.insert(sequence.ids.end(), other.ids.begin() + other.response_begin, other.ids.end());
    mixed.push_back(std::move(sequence));
  }
  std::vector<const Sequence*> pointers;
  for (const Sequence& sequence : mixed) pointers.push_back(&sequence);
  const at::NoGradGuard no_grad;
  const ResponseBatch batch = response_batch(pointers);
  const auto logps = [&](const Reference& model) {
    return padded(label_logps(reference_rows(model, batch), batch.labels), batch.counts);
  };
  Side side{.logps = logps({&policy_, AdapterUse::on}),
            .reference_logps = {},
            .mask = padding_mask(batch.counts),
            .divergences = {}};
  if (needs_.reference_logps) side.reference_logps = logps(loss_reference());
  return side;
}

PreferenceTask::Scored PreferenceTask::scored(const std::vector<const PreferencePair*>& pairs,
                                              const std::vector<Cached*>& caches, bool measure,
                                              const std::string& visit) const {
  const ResponseBatch batch = response_batch(both_sides(pairs));
  // The states that the head reads, and those that the recipe asks for.
  const int64_t layer = needs_.hidden_layer;
  const ResponseStates ours = layer > 0 ? response_states(policy_, batch, AdapterUse::on, layer)
                                        : ResponseStates{response_hidden(policy_, batch), {}};
  const Rows policy = policy_.head_rows(ours.last);
  Rows reference;
  std::vector<RowDivergence> divergences = needs_.divergences;
  const std::vector<RowDivergence> limited = limits_.divergences();
  divergences.insert(divergences.end(), limited.begin(), limited.end());
  const bool compared = reference_.model != nullptr && (measure || needs_.hidden || !divergences.empty());
  Tensor reference_layer;
  if (compared && layer > 0) {
    const at::NoGradGuard no_grad;
    const ResponseStates theirs = response_states(*reference_.model, batch, reference_.use, layer);
    reference = reference_.model->head_rows(theirs.last), reference_layer = theirs.after_layer;
  } else if (compared) {
    reference = reference_rows(reference_, batch);
  }
  const HeadRequest wanted{.labels = batch.labels, .logps = true, .scores = {}, .divergences = divergences};
  HeadStatistics statistics =
      divergences.empty() ? head_statistics(policy, wanted) : head_statistics(policy, reference, wanted);

  Scored result{
      .batch = {.chosen = {}, .rejected = {}, .weight = {}}, .counts = batch.counts, .measured = {}, .limited = {}};
  const auto first_limit = statistics.divergences.begin() + std::ssize(needs_.divergences);
  result.limited.assign(first_limit, statistics.divergences.end());
  statistics.divergences.erase(first_limit, statistics.divergences.end());
  if (measure && compared) result.measured = exact_distances(policy, reference);

  const auto sides = [&](const Tensor& values) {
    const Tensor rows = padded(values, batch.counts);  // [2B,T]
    return rows.chunk(2, 0);
  };
  Side& chosen = result.batch.chosen;
  Side& rejected = result.batch.rejected;
  const auto masks = padding_mask(batch.counts).chunk(2, 0);
  chosen.mask = masks[0], rejected.mask = masks[1];
  const auto logps = sides(statistics.logps);
  chosen.logps = logps[0], rejected.logps = logps[1];
  for (const Tensor& d : statistics.divergences) {
    const auto parts = sides(d);
    chosen.divergences.push_back(parts[0]);
    rejected.divergences.push_back(parts[1]);
  }
  if (needs_.hidden) {
    const Tensor places = padded(at::arange(ours.last.size(0), at::kLong), batch.counts);  // [2B,T]
    const auto states = [&](const Tensor& values) {
      return values.index_select(0, places.flatten()).reshape({places.size(0), places.size(1), -1}).chunk(2, 0);
    };
    const auto policy_states = states(layer > 0 ? ours.after_layer : ours.last),
               reference_states = states(layer > 0 ? reference_layer : reference.hidden);
    chosen.hidden = policy_states[0], rejected.hidden = policy_states[1];
    chosen.reference_hidden = reference_states[0], rejected.reference_hidden = reference_states[1];
  }
  for (int64_t set = 0; set < needs_.uniforms; ++set) {
    Tensor numbers = at::zeros(chosen.mask.sizes(), at::kDouble).repeat({2, 1});  // [2B,T]
    for (int64_t row = 0; row < numbers.size(0); ++row) {
      const int64_t line = pairs[static_cast<size_t>(row) % pairs.size()]->line;
      RandomStream stream(static_cast<uint64_t>(set), visit + (row < chosen.mask.size(0) ? "/chosen" : "/rejected"),
                          static_cast<uint64_t>(line));
      double* data = numbers.mutable_data_ptr<double>() + row * numbers.size(1);
      for (int64_t t = 0; t < numbers.size(1); ++t) data[t] = stream.uniform();
    }
    chosen.uniforms.push_back(numbers.chunk(2, 0)[0]), rejected.uniforms.push_back(numbers.chunk(2, 0)[1]);
  }
  result.batch.vocabulary = policy_.config.vocabulary_size;
  const auto present = [&](bool PreferencePair::*has) {
    std::vector<int64_t> flags;
    for (const PreferencePair* pair : pairs) flags.push_back(pair->*has);
    return at::tensor(flags, at::kLong).to(at::kBool);
  };
  if (needs_.unpaired) {
    result.batch.chosen_present = present(&PreferencePair::has_chosen);
    result.batch.rejected_present = present(&PreferencePair::has_rejected);
  }
  if (needs_.mismatched != 0) {
    std::vector<const Sequence*> sequences;
    for (const PreferencePair* pair : pairs) {
      if (pair->has_chosen) sequences.push_back(&pair->chosen);
    }
    for (const PreferencePair* pair : pairs) {
      if (pair->has_rejected) sequences.push_back(&pair->rejected);
    }
    result.batch.mismatched = mismatched(sequences);
  }
  if (needs_.reference_logps) {
    fill_reference(pairs, caches);
    std::vector<Tensor> parts;
    for (const Cached* cached : caches) parts.push_back(cached->chosen);
    for (const Cached* cached : caches) parts.push_back(cached->rejected);
    const auto references = sides(at::cat(parts));
    chosen.reference_logps = references[0], rejected.reference_logps = references[1];
  }
  const bool weighted = std::any_of(pairs.begin(), pairs.end(), [](const PreferencePair* p) { return p->weight != 1; });
  if (weighted) {
    std::vector<double> weights;
    for (const PreferencePair* pair : pairs) weights.push_back(pair->weight);
    result.batch.weight = at::tensor(weights, at::kDouble);
  }
  return result;
}

Figures PreferenceTask::accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) {
  std::vector<const PreferencePair*> pairs;
  std::vector<Cached*> caches;
  // A row's numbers may depend, in the last bit, on the rows beside it: what this batch computes is not kept for another one,
  // which a resumed run might be the first to see.
  std::vector<Cached> own(batch.size());
  for (const int64_t i : batch) {
    pairs.push_back(&training_.pairs[static_cast<size_t>(i)]);
    Cached& prepared = training_cache_[static_cast<size_t>(i)];
    caches.push_back(prepared.chosen.defined() ? &prepared : &own[caches.size()]);
  }
  if (std::all_of(pairs.begin(), pairs.end(),
                  [](const PreferencePair* p) { return p->chosen.counted() + p->rejected.counted() == 0; })) {
    warn(fmt::format("{}: no token to count; the batch is skipped", describe(batch)));
    return {{"loss", {}}, {"skipped_pairs", {static_cast<double>(batch.size()), 1}}};
  }
  // Which examples share a step changes with every visit, and is the same in a run that is resumed.
  const std::string visit = needs_.uniforms > 0 ? fmt::format("visit {}", fmt::join(whole, " ")) : "";
  Scored scored = this->scored(pairs, caches, measure, visit);
  scored.batch.pairs_in_step = static_cast<double>(whole.size());
  for (const int64_t i : whole) {
    const PreferencePair& pair = training_.pairs[static_cast<size_t>(i)];
    scored.batch.chosen_tokens_in_step += static_cast<double>(pair.chosen.counted());
    scored.batch.rejected_tokens_in_step += static_cast<double>(pair.rejected.counted());
  }
  const PreferenceLoss loss = recipe_.loss(scored.batch, options_);
  const double value = loss.value.item<double>();
  Tensor minimised = loss.value;
  if (!limits_.empty()) {
    const double tokens = scored.batch.chosen_tokens_in_step + scored.batch.rejected_tokens_in_step;
    const std::vector<double> weights = limits_.weights(tokens, 2 * static_cast<double>(whole.size()));
    for (size_t i = 0; i < weights.size(); ++i) minimised = minimised + weights[i] * scored.limited[i].sum();
  }
  if (std::isfinite(value)) minimised.backward();  // else the loop stops, and weights must stay as they are
  for (const PreferencePair* pair : pairs)
    tokens_ += static_cast<int64_t>(pair->chosen.ids.size() + pair->rejected.ids.size());

  Figures figures;
  figures["loss"] = {value * static_cast<double>(whole.size()), static_cast<double>(batch.size())};
  figures["margin"] = total(loss.chosen_rewards - loss.rejected_rewards);
  figures["accuracy"] = total((loss.chosen_rewards > loss.rejected_rewards).to(at::kDouble));
  figures["rewards/chosen"] = total(loss.chosen_rewards);
  figures["rewards/rejected"] = total(loss.rejected_rewards);
  figures["logps/chosen"] = total(sequence_sum(scored.batch.chosen.logps.detach(), scored.batch.chosen.mask));
  figures["logps/rejected"] = total(sequence_sum(scored.batch.rejected.logps.detach(), scored.batch.rejected.mask));
  for (const auto& [name, part] : loss.parts) {
    if (name != "logits" && !name.starts_with("policy_")) figures[name] = total(part);  // those are logged already
  }
  for (size_t i = 0; i < scored.measured.size(); ++i) figures[distance_names()[i]] = total(scored.measured[i]);
  add_limit_figures(limits_, scored.limited, 2 * static_cast<double>(batch.size()), figures);
  return figures;
}

std::vector<Figures> PreferenceTask::evaluate(const std::function<void(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  std::vector<Figures> rows;
  Figures limited;
  constexpr size_t batch_size = 4;  // pairs; small, since rows of both models are held
  const std::vector<PreferencePair>& all = held_out_.pairs;
  const auto [first, last] = processes().share(std::ssize(all));
  for (auto begin = static_cast<size_t>(first), end = static_cast<size_t>(last); begin < end; begin += batch_size) {
    std::vector<const PreferencePair*> pairs;
    std::vector<Cached*> caches;
    for (size_t i = begin; i < std::min(begin + batch_size, end); ++i) {
      pairs.push_back(&all[i]);
      caches.push_back(&held_out_cache_[i]);
    }
    const Scored s = scored(pairs, caches, /*measure=*/true, "held out");
    const PreferenceLoss loss = recipe_.loss(s.batch, options_);
    const Tensor chosen = sequence_sum(s.batch.chosen.logps, s.batch.chosen.mask),
                 rejected = sequence_sum(s.batch.rejected.logps, s.batch.rejected.mask);
    const auto at_row = [](const Tensor& values, size_t i) { return values[static_cast<int64_t>(i)].item<double>(); };
    std::vector<std::vector<Tensor>> measured;  // by figure, then by response
    for (const Tensor& values : s.measured) measured.push_back(values.split_with_sizes(s.counts));
    add_limit_figures(limits_, s.limited, 2 * static_cast<double>(pairs.size()), limited);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const double margin = at_row(loss.chosen_rewards, i) - at_row(loss.rejected_rewards, i);
      const auto chosen_tokens = static_cast<double>(pairs[i]->chosen.counted()),
                 rejected_tokens = static_cast<double>(pairs[i]->rejected.counted());
      Figures row;
      row["loss"] = {at_row(loss.losses, i), 1};
      row["margin"] = {margin, 1};
      row["accuracy"] = {margin > 0 ? 1.0 : 0.0, 1};
      row["likelier"] = {at_row(chosen, i) / chosen_tokens > at_row(rejected, i) / rejected_tokens ? 1.0 : 0.0, 1};
      row["token_logps/chosen"] = {at_row(chosen, i), chosen_tokens};
      row["token_logps/rejected"] = {at_row(rejected, i), rejected_tokens};
      for (const size_t side : {i, i + pairs.size()}) {
        std::vector<Tensor> of_response;
        for (const auto& by_response : measured) of_response.push_back(by_response[side]);
        add_distances(of_response, row);
      }
      rows.push_back(std::move(row));
    }
    progress(std::ssize(rows), last - first);
  }
  rows = processes().joined(rows);
  if (!rows.empty()) limits_.observe_held_out(processes().sum(limited));
  return rows;
}

Tensor PreferenceTask::held_out_loss(size_t pair) {
  const Scored s = scored({&held_out_.pairs[pair]}, {&held_out_cache_[pair]}, /*measure=*/false, "held out");
  return recipe_.loss(s.batch, options_).value;
}

std::string PreferenceTask::reference_key() const {
  std::string text =
      fmt::format("prefix {}\n", fmt::join(needs_.reference_without_prompt ? prefix_ : std::vector<int32_t>(), " "));
  const auto add = [&](const NamedTensor& t) {
    const Tensor values = t.tensor.detach().contiguous();
    const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
    text += fmt::format("{} {}\n", t.name, sha256_hex(std::span(bytes, values.nbytes())));
  };
  for (const NamedTensor& t : reference_.model->parameters()) add(t);
  if (reference_.use == AdapterUse::on) {
    for (const NamedTensor& t : reference_.model->adapter()) add(t);
  }
  for (const PreferenceData* data : {&training_, &held_out_}) {
    for (const PreferencePair& pair : data->pairs) {
      for (const Sequence* s : {&pair.chosen, &pair.rejected})
        text += fmt::format("{} {}\n", s->response_begin, fmt::join(s->ids, " "));
    }
  }
  return sha256_hex(text);
}

void PreferenceTask::prepare_reference(const std::filesystem::path& folder,
                                       const std::function<void(int64_t, int64_t)>& progress) {
  if (!needs_.reference_logps || moving_) return;
  std::vector<Tensor*> places;  // two a pair
  std::vector<int64_t> counts;
  for (const bool training : {true, false}) {
    const PreferenceData& data = training ? training_ : held_out_;
    std::vector<Cached>& cache = training ? training_cache_ : held_out_cache_;
    for (size_t i = 0; i < data.pairs.size(); ++i) {
      places.push_back(&cache[i].chosen), counts.push_back(data.pairs[i].chosen.counted());
      places.push_back(&cache[i].rejected), counts.push_back(data.pairs[i].rejected.counted());
    }
  }
  if (places.empty()) return;
  const std::filesystem::path file = folder / (reference_key() + ".safetensors");
  if (std::filesystem::exists(file)) {
    const SafetensorsFile stored = SafetensorsFile::open(file);
    const TensorBytes& logps = stored.tensor("reference_logps");
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    check_shape(stored.name(), logps.name, logps.shape, {total});
    Tensor whole = at::empty({total}, reference_.model->dtype() == at::kDouble ? at::kDouble : at::kFloat);
    read_tensor(stored.name(), logps, whole);
    const std::vector<Tensor> parts = whole.split_with_sizes(counts);
    for (size_t i = 0; i < places.size(); ++i) *places[i] = parts[i].clone();
    return note(fmt::format("the reference's log-probabilities are those of {}", file.string()));
  }
  const auto all = static_cast<int64_t>(training_.pairs.size() + held_out_.pairs.size());
  int64_t done = 0;
  for (const bool training : {true, false}) {
    const PreferenceData& data = training ? training_ : held_out_;
    std::vector<Cached>& cache = training ? training_cache_ : held_out_cache_;
    for (size_t i = 0; i < data.pairs.size(); ++i) {
      fill_reference({&data.pairs[i]}, {&cache[i]});
      progress(++done, all);
    }
  }
  std::vector<Tensor> parts;
  for (const Tensor* place : places) parts.push_back(*place);
  const Tensor whole = at::cat(parts).contiguous();
  std::filesystem::create_directories(folder);
  const auto* bytes = static_cast<const std::byte*>(whole.const_data_ptr());
  const TensorBytes tensor{"reference_logps", stored_dtype(whole), whole.sizes().vec(), {bytes, whole.nbytes()}};
  if (processes().first()) write_safetensors(file, {&tensor, 1});
}

}  // namespace kullback
