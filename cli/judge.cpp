#include "cli/judge.h"

#include <numeric>
#include <utility>

#include "kullback/io/jsonl.h"
#include "kullback/report/progress.h"

namespace kullback {

const Options<DataOptions>& measured_data_options() {
  using TextFormat = DataOptions::TextFormat;
  static const auto options =
      Options<DataOptions>()
          .option("data", &DataOptions::data, "JSONL file of responses, or of preference pairs")
          .option("max-rows", &DataOptions::max_rows, at_least(0), "use only so many rows of --data; 0: all")
          .option("max-length", &DataOptions::max_length, at_least(2),
                  "tokens of prompt and response together; longer responses are cut")
          .option("drop-overlong", &DataOptions::drop_overlong,
                  "leave out rows whose prompt alone fills --max-length, instead of stopping")
          .option(
              "text-format", &DataOptions::text_format, {{"chat", TextFormat::chat}, {"raw", TextFormat::raw}},
              "chat: plain strings become messages in the model's chat template; raw: texts are joined as they stand");
  return options;
}

bool holds_pairs(const std::string& path) {
  bool pairs = false, first = true;
  read_jsonl(path, [&](int64_t, const Json& row) {
    if (std::exchange(first, false)) pairs = row.contains("chosen");
  });
  return pairs;
}

SupervisedData responses_of(const DataOptions& data, const Model& model) {
  if (!holds_pairs(data.data)) return load_supervised(data.data, model, data);
  PreferenceData read = load_preferences(data.data, model, data);
  SupervisedData responses{.path = read.path, .examples = {}, .counts = read.counts};
  for (PreferencePair& pair : read.pairs) {
    responses.examples.push_back({.line = pair.line,
                                  .sequence = std::move(pair.chosen),
                                  .prompt = std::move(pair.prompt),
                                  .text = std::move(pair.chosen_text)});
  }
  return responses;
}

std::vector<std::vector<Example>> drawn_with_progress(const Model& model, AdapterUse use,
                                                      const std::vector<Example>& examples,
                                                      const DrawOptions& options) {
  Progress progress("sample", std::ssize(examples));
  auto drawn = drawn_responses(model, use, examples, options, [&](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  return drawn;
}

std::vector<std::vector<double>> judged(const Reward& reward, const std::vector<std::vector<Example>>& drawn) {
  std::vector<PromptedResponse> all;
  for (const auto& of_prompt : drawn) {
    for (const Example& one : of_prompt)
      all.push_back({.prompt = one.prompt, .response = one.text, .tokens = one.sequence.counted()});
  }
  const std::vector<double> rewards = reward(all);
  std::vector<std::vector<double>> by_prompt;
  auto next = rewards.begin();
  for (const auto& of_prompt : drawn) {
    const auto end = next + std::ssize(of_prompt);
    by_prompt.emplace_back(next, end);
    next = end;
  }
  return by_prompt;
}

Mean mean_of(const std::vector<double>& values) {
  return {std::accumulate(values.begin(), values.end(), 0.0), static_cast<double>(values.size())};
}

}  // namespace kullback
