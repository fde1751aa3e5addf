#include "kullback/train/data.h"

#include <algorithm>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/io/jsonl.h"

namespace kullback {
namespace {

std::string where(const std::filesystem::path& path, int64_t line) {
  return fmt::format("{}: line {}", path.string(), line);
}

std::vector<Message> messages(const Json& value, const std::string& field, const std::string& place) {
  std::vector<Message> list;
  for (const Json& one : value) {
    const bool whole = one.is_object() && one.contains("role") && one.contains("content") && one["role"].is_string() &&
                       one["content"].is_string();
    if (!whole) fail("{}: \"{}\" holds something that is not a message with role and content", place, field);
    list.push_back({one["role"].get<std::string>(), one["content"].get<std::string>()});
  }
  return list;
}

/// A column as messages: a string is one message of the given role.
std::vector<Message> conversation(const Json& row, const std::string& field, const std::string& role,
                                  const std::string& place) {
  const Json& value = row.at(field);
  if (value.is_string()) return {{role, value.get<std::string>()}};
  if (!value.is_array()) fail("{}: \"{}\" is neither a text nor a list of messages", place, field);
  return messages(value, field, place);
}

bool same(const Message& a, const Message& b) { return a.role == b.role && a.content == b.content; }

/// Moves what both responses begin with into the prompt, so that one answer is left of each (TRL's implicit prompts).
void take_shared_prompt(std::vector<Message>& prompt, std::vector<Message>& chosen, std::vector<Message>& rejected) {
  while (chosen.size() > 1 && rejected.size() > 1 && same(chosen.front(), rejected.front())) {
    prompt.push_back(chosen.front());
    chosen.erase(chosen.begin());
    rejected.erase(rejected.begin());
  }
}

std::string answer(const std::vector<Message>& response, const std::string& field, const std::string& place) {
  if (response.size() != 1 || response[0].role != "assistant") {
    fail("{}: \"{}\" must be one answer of the assistant after what it shares with the other response", place, field);
  }
  if (response[0].content.empty()) fail("{}: \"{}\" is empty", place, field);
  return response[0].content;
}

void read_weight(const Json& row, const std::string& place, PreferencePair& pair) {
  if (!row.contains("weight")) return;
  if (!row["weight"].is_number() || !(row["weight"].get<double>() >= 0))
    fail("{}: \"weight\" is not a number >= 0", place);
  pair.weight = row["weight"].get<double>();
}

/// One response with a label: good ones are chosen, bad ones rejected, and the other side is empty.
PreferencePair read_labelled(const Json& row, int64_t line, const std::string& place) {
  for (const char* field : {"prompt", "label"}) {
    if (!row.contains(field)) fail("{}: no column \"{}\" beside \"completion\"", place, field);
  }
  const Json& label = row["label"];
  if (!label.is_boolean() && label != 0 && label != 1) fail("{}: \"label\" is neither true nor false", place);
  PreferencePair pair;
  pair.line = line;
  pair.prompt = conversation(row, "prompt", "user", place);
  const bool good = label == true || label == 1;
  pair.has_chosen = good, pair.has_rejected = !good;
  (good ? pair.chosen_text : pair.rejected_text) =
      answer(conversation(row, "completion", "assistant", place), "completion", place);
  read_weight(row, place, pair);
  return pair;
}

PreferencePair read_pair(const Json& row, int64_t line, const std::string& place) {
  if (row.contains("completion") && !row.contains("chosen")) return read_labelled(row, line, place);
  for (const char* field : {"chosen", "rejected"}) {
    if (!row.contains(field)) fail("{}: no column \"{}\"", place, field);
  }
  PreferencePair pair;
  pair.line = line;
  if (row.contains("prompt")) pair.prompt = conversation(row, "prompt", "user", place);
  auto chosen = conversation(row, "chosen", "assistant", place),
       rejected = conversation(row, "rejected", "assistant", place);
  take_shared_prompt(pair.prompt, chosen, rejected);
  pair.chosen_text = answer(chosen, "chosen", place);
  pair.rejected_text = answer(rejected, "rejected", place);
  if (pair.prompt.empty())
    fail("{}: no \"prompt\", and \"chosen\" and \"rejected\" begin with no shared messages", place);
  read_weight(row, place, pair);
  return pair;
}

std::string prompt_text(const Model& model, const std::vector<Message>& prompt, DataOptions::TextFormat format) {
  if (format == DataOptions::TextFormat::chat)
    return model.chat_template().render(prompt, /*add_generation_prompt=*/true);
  std::string text;
  for (const Message& message : prompt) text += message.content;
  return text;
}

/// The text from the beginning of the prompt to the end of the response's turn. What a template writes after the
/// end-of-turn token (a newline, say) is left out: in use, generation stops at that token.
std::string full_text(const Model& model, const std::vector<Message>& prompt, const std::string& response,
                      DataOptions::TextFormat format) {
  if (format == DataOptions::TextFormat::raw) return prompt_text(model, prompt, format) + response;
  std::vector<Message> all = prompt;
  all.push_back({"assistant", response});
  return model.chat_template().render(all, false);
}

}  // namespace

const Options<DataOptions>& data_options() {
  using TextFormat = DataOptions::TextFormat;
  static const auto options =
      Options<DataOptions>()
          .option("data", &DataOptions::data, "JSONL file of training rows")
          .option("eval-data", &DataOptions::eval_data,
                  "JSONL file of held-out rows; without it a part of --data is held out")
          .option("eval-fraction", &DataOptions::eval_fraction,
                  NumberRange{.minimum = 0, .maximum = 1, .maximum_excluded = true},
                  "share of --data that is held out when there is no --eval-data")
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

std::vector<int32_t> encode_prompt(const Model& model, const std::vector<Message>& prompt,
                                   DataOptions::TextFormat format) {
  return model.text().encode(prompt_text(model, prompt, format));
}

Sequence encode_response(const Model& model, const std::vector<Message>& prompt, const std::string& response,
                         DataOptions::TextFormat format, int64_t* merged) {
  const Tokenizer& tokenizer = model.text();
  const std::string before = prompt_text(model, prompt, format), text = full_text(model, prompt, response, format);
  const std::vector<int32_t> prompt_ids = tokenizer.encode(before);
  Sequence sequence{.ids = tokenizer.encode(text), .response_begin = static_cast<int64_t>(prompt_ids.size())};
  const bool continues = sequence.ids.size() >= prompt_ids.size() &&
                         std::equal(prompt_ids.begin(), prompt_ids.end(), sequence.ids.begin());
  if (!continues) {
    sequence.ids = prompt_ids;
    const std::string tail = text.starts_with(before) ? text.substr(before.size()) : response;
    const std::vector<int32_t> response_ids = tokenizer.encode(tail);
    sequence.ids.insert(sequence.ids.end(), response_ids.begin(), response_ids.end());
    if (merged != nullptr) ++*merged;
  }
  const std::vector<int32_t>& stops = model.generation.stop_ids;
  const auto is_stop = [&](int32_t id) { return std::find(stops.begin(), stops.end(), id) != stops.end(); };
  if (format == DataOptions::TextFormat::raw) {
    if (!stops.empty()) sequence.ids.push_back(stops.front());  // the model must learn where a text ends
    return sequence;
  }
  const auto last_stop = std::find_if(sequence.ids.rbegin(), sequence.ids.rend(), is_stop);
  const auto after = static_cast<int64_t>(last_stop - sequence.ids.rbegin());
  if (after < sequence.counted()) sequence.ids.resize(sequence.ids.size() - static_cast<size_t>(after));
  return sequence;
}

PreferenceData load_preferences(const std::filesystem::path& path, const Model& model, const DataOptions& options) {
  PreferenceData data{.path = path.string(), .pairs = {}, .counts = {}};
  const auto limit = static_cast<size_t>(options.max_length);
  read_jsonl(path, [&](int64_t line, const Json& row) {
    if (options.max_rows > 0 && data.counts.read >= options.max_rows) return;
    ++data.counts.read;
    const std::string place = where(path, line);
    PreferencePair pair = read_pair(row, line, place);
    bool cut = false;
    for (const auto& [sequence, text, name] :
         {std::tuple{&pair.chosen, &pair.chosen_text, "chosen"}, {&pair.rejected, &pair.rejected_text, "rejected"}}) {
      if (text->empty()) {  // the side that a labelled response has not
        sequence->ids = encode_prompt(model, pair.prompt, options.text_format);
        sequence->response_begin = std::ssize(sequence->ids);
      } else {
        *sequence = encode_response(model, pair.prompt, *text, options.text_format, &data.counts.merged);
      }
      if (sequence->response_begin == 0) fail("{}: the prompt is empty", place);
      if (sequence->response_begin >= options.max_length) {
        if (options.drop_overlong) {
          ++data.counts.dropped;
          return;
        }
        fail(
            "{}: the prompt alone has {} tokens, which leaves nothing of \"{}\" within --max-length {}; raise it or "
            "pass --drop-overlong",
            place, sequence->response_begin, name, options.max_length);
      }
      if (sequence->ids.size() > limit) sequence->ids.resize(limit), cut = true;
    }
    data.counts.cut += cut;
    ++data.counts.used;
    data.pairs.push_back(std::move(pair));
  });
  if (data.pairs.empty()) fail("{}: no row that can be used", path.string());
  return data;
}

PreferenceData hold_out(PreferenceData& data, double share, uint64_t seed) {
  const auto count = static_cast<size_t>(std::lround(share * static_cast<double>(data.pairs.size())));
  PreferenceData held{.path = data.path, .pairs = {}, .counts = {}};
  if (count == 0) return held;
  if (count >= data.pairs.size())
    fail("option --eval-fraction: {} of {} rows leaves none to train on", share, data.pairs.size());
  std::vector<size_t> order(data.pairs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  RandomStream(seed, "held out").shuffle(order);
  std::vector<bool> is_held(order.size(), false);
  for (size_t i = 0; i < count; ++i) is_held[order[i]] = true;
  std::vector<PreferencePair> kept;
  for (size_t i = 0; i < is_held.size(); ++i) (is_held[i] ? held.pairs : kept).push_back(std::move(data.pairs[i]));
  data.pairs = std::move(kept);
  held.counts.read = held.counts.used = static_cast<int64_t>(count);
  return held;
}

}  // namespace kullback
