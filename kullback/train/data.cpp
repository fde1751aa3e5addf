#include "kullback/train/data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/base/suggest.h"
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

double weight(const Json& row, const std::string& place) {
  if (!row.contains("weight")) return 1;
  if (!row["weight"].is_number() || !(row["weight"].get<double>() >= 0))
    fail("{}: \"weight\" is not a number >= 0", place);
  return row["weight"].get<double>();
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
  pair.weight = weight(row, place);
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
  pair.weight = weight(row, place);
  return pair;
}

Example read_example(const Json& row, int64_t line, const std::string& place) {
  Example example;
  example.line = line;
  example.weight = weight(row, place);
  if (row.contains("text")) {
    if (!row["text"].is_string() || row["text"].get<std::string>().empty())
      fail("{}: \"text\" is empty or no text", place);
    example.text = row["text"].get<std::string>();
    return example;
  }
  std::vector<Message> response;
  std::string field = "completion";
  if (row.contains("messages")) {
    field = "messages";
    example.prompt = conversation(row, "messages", "user", place);
    if (example.prompt.empty()) fail("{}: \"messages\" is empty", place);
    response = {example.prompt.back()};
    example.prompt.pop_back();
  } else {
    for (const char* column : {"prompt", "completion"}) {
      if (!row.contains(column)) fail("{}: no column \"{}\" (nor \"messages\", nor \"text\")", place, column);
    }
    example.prompt = conversation(row, "prompt", "user", place);
    response = conversation(row, "completion", "assistant", place);
  }
  if (response.size() != 1 || response[0].role != "assistant") {
    fail("{}: \"{}\" must end in one answer of the assistant", place, field);
  }
  example.text = response[0].content;
  if (example.text.empty()) fail("{}: the answer in \"{}\" is empty", place, field);
  if (example.prompt.empty()) fail("{}: no message comes before the answer", place);
  return example;
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

namespace {

/// Whether anything of a response is left within max_length. An Error where not, or false where such rows are dropped.
bool fits(const Sequence& sequence, const DataOptions& options, RowCounts& counts, const std::string& place,
          const std::string& name) {
  if (sequence.response_begin < options.max_length) return true;
  if (!options.drop_overlong) {
    fail(
        "{}: the prompt alone has {} tokens, which leaves nothing of \"{}\" within --max-length {}; raise it or pass "
        "--drop-overlong",
        place, sequence.response_begin, name, options.max_length);
  }
  ++counts.dropped;
  return false;
}

/// A plain text: all but its first token is learnt, and its end.
Sequence encode_text(const Model& model, const std::string& text) {
  Sequence sequence{.ids = model.text().encode(text), .response_begin = 1};
  const auto bos = model.text().bos();
  if (bos && (sequence.ids.empty() || sequence.ids.front() != *bos)) sequence.ids.insert(sequence.ids.begin(), *bos);
  if (!model.generation.stop_ids.empty()) sequence.ids.push_back(model.generation.stop_ids.front());
  return sequence;
}

}  // namespace

Sequence encode_row(const Model& model, const std::vector<Message>& prompt, const std::string& text,
                    const DataOptions& options) {
  Sequence sequence =
      prompt.empty() ? encode_text(model, text) : encode_response(model, prompt, text, options.text_format);
  const auto limit = static_cast<size_t>(options.max_length);
  if (sequence.ids.size() > limit) sequence.ids.resize(limit);
  return sequence;
}

namespace {

/// For each token that is learnt, 1 where it is part of one of the texts in the row's column `private`, else 0.
std::vector<double> privacy(const Json& row, const Example& example, const Tokenizer& tokenizer,
                            const std::string& place) {
  std::string bytes;
  std::vector<size_t> ends;
  for (int64_t t = example.sequence.response_begin; t < std::ssize(example.sequence.ids); ++t) {
    bytes += tokenizer.token_bytes(example.sequence.ids[static_cast<size_t>(t)]);
    ends.push_back(bytes.size());
  }
  std::vector<double> marks(ends.size(), 0.0);
  if (!row.contains("private")) return marks;
  if (!row["private"].is_array()) fail("{}: \"private\" is no list of texts", place);
  for (const Json& one : row["private"]) {
    const std::string text = one.is_string() ? one.get<std::string>() : "";
    if (text.empty() || example.text.find(text) == std::string::npos)
      fail("{}: \"private\" holds {}, which is no part of the response", place, one.dump());
    for (size_t at = bytes.find(text); at != std::string::npos; at = bytes.find(text, at + 1)) {
      for (size_t t = 0; t < ends.size(); ++t) {
        const size_t begin = t == 0 ? 0 : ends[t - 1];
        if (begin < at + text.size() && ends[t] > at) marks[t] = 1;
      }
    }
  }
  return marks;
}

}  // namespace

SupervisedData load_supervised(const std::filesystem::path& path, const Model& model, const DataOptions& options) {
  SupervisedData data{.path = path.string(), .examples = {}, .counts = {}};
  const auto limit = static_cast<size_t>(options.max_length);
  bool with_privacy = false;
  read_jsonl(path, [&](int64_t line, const Json& row) {
    if (options.max_rows > 0 && data.counts.read >= options.max_rows) return;
    ++data.counts.read;
    const std::string place = where(path, line);
    Example example = read_example(row, line, place);
    example.sequence = example.prompt.empty() ? encode_text(model, example.text)
                                              : encode_response(model, example.prompt, example.text,
                                                                options.text_format, &data.counts.merged);
    if (!fits(example.sequence, options, data.counts, place, example.prompt.empty() ? "text" : "completion")) return;
    if (example.sequence.ids.size() > limit) {
      example.sequence.ids.resize(limit);
      ++data.counts.cut;
    }
    ++data.counts.used;
    if (row.contains("private") && !with_privacy) {  // none of the rows before holds anything private
      with_privacy = true;
      for (Example& before : data.examples)
        before.numbers["privacy"].assign(static_cast<size_t>(before.sequence.counted()), 0.0);
    }
    if (with_privacy) example.numbers["privacy"] = privacy(row, example, model.text(), place);
    data.examples.push_back(std::move(example));
  });
  if (data.examples.empty()) fail("{}: no row that can be used", path.string());
  return data;
}

SupervisedData load_prompts(const std::filesystem::path& path, const Model& model, const DataOptions& options) {
  bool preferences = false, first = true;
  read_jsonl(path, [&](int64_t, const Json& row) {
    if (std::exchange(first, false)) preferences = row.contains("chosen");
  });
  if (!preferences) return load_supervised(path, model, options);
  PreferenceData pairs = load_preferences(path, model, options);
  SupervisedData data{.path = pairs.path, .examples = {}, .counts = pairs.counts};
  for (PreferencePair& pair : pairs.pairs)
    data.examples.push_back({.line = pair.line,
                             .sequence = std::move(pair.chosen),
                             .weight = pair.weight,
                             .prompt = std::move(pair.prompt),
                             .text = std::move(pair.chosen_text)});
  return data;
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
      if (!fits(*sequence, options, data.counts, place, name)) return;
      if (sequence->ids.size() > limit) sequence->ids.resize(limit), cut = true;
    }
    data.counts.cut += cut;
    ++data.counts.used;
    data.pairs.push_back(std::move(pair));
  });
  if (data.pairs.empty()) fail("{}: no row that can be used", path.string());
  return data;
}

std::string described_lines(std::vector<int64_t> lines, const std::string& path) {
  std::sort(lines.begin(), lines.end());
  std::vector<std::string> words;
  for (const int64_t line : lines) words.push_back(std::to_string(line));
  return fmt::format("line{} {} of {}", words.size() == 1 ? "" : "s", listing(words), path);
}

namespace {

/// Moves a share of the rows, drawn by seed, to `held`; both keep their order.
template <class Row>
void split_off(std::vector<Row>& rows, std::vector<Row>& held, double share, uint64_t seed) {
  const auto count = static_cast<size_t>(std::lround(share * static_cast<double>(rows.size())));
  if (count == 0) return;
  if (count >= rows.size()) fail("option --eval-fraction: {} of {} rows leaves none to train on", share, rows.size());
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  RandomStream(seed, "held out").shuffle(order);
  std::vector<bool> is_held(order.size(), false);
  for (size_t i = 0; i < count; ++i) is_held[order[i]] = true;
  std::vector<Row> kept;
  for (size_t i = 0; i < is_held.size(); ++i) (is_held[i] ? held : kept).push_back(std::move(rows[i]));
  rows = std::move(kept);
}

}  // namespace

PreferenceData hold_out(PreferenceData& data, double share, uint64_t seed) {
  PreferenceData held{.path = data.path, .pairs = {}, .counts = {}};
  split_off(data.pairs, held.pairs, share, seed);
  held.counts.read = held.counts.used = std::ssize(held.pairs);
  data.counts.used = std::ssize(data.pairs);
  return held;
}

SupervisedData hold_out(SupervisedData& data, double share, uint64_t seed) {
  SupervisedData held{.path = data.path, .examples = {}, .counts = {}};
  split_off(data.examples, held.examples, share, seed);
  held.counts.read = held.counts.used = std::ssize(held.examples);
  data.counts.used = std::ssize(data.examples);
  return held;
}

}  // namespace kullback
