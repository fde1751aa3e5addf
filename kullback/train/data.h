#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kullback/base/options.h"
#include "kullback/lm/model.h"

namespace kullback {

/// How rows of text become token ids.
struct DataOptions {
  std::string data = {};       ///< JSONL of the training rows
  std::string eval_data = {};  ///< JSONL of the held-out rows; empty: a part of `data` is held out
  double eval_fraction = 0.1;  ///< of `data`, held out when there is no eval_data
  int64_t max_rows = 0;        ///< take only so many rows of `data`; 0: all
  int64_t max_length = 1024;   ///< tokens of prompt and response together
  bool drop_overlong = false;  ///< leave out rows whose prompt alone fills max_length, instead of stopping
  enum class TextFormat { chat, raw } text_format = TextFormat::chat;
};
const Options<DataOptions>& data_options();

/// A prompt and one response to it, as ids. Tokens from `response_begin` on are what is learnt.
struct Sequence {
  std::vector<int32_t> ids;
  int64_t response_begin = 0;
  int64_t counted() const { return static_cast<int64_t>(ids.size()) - response_begin; }
};

/// A preference: two responses to one prompt.
struct PreferencePair {
  int64_t line = 0;  ///< in its file, from 1
  Sequence chosen, rejected;
  bool has_chosen = true,
       has_rejected = true;     ///< false: one labelled response alone; that side is a prompt without one
  double weight = 1;            ///< column `weight`
  std::vector<Message> prompt;  ///< as read, for samples and reports
  std::string chosen_text, rejected_text;
};

/// What happened to the rows of a file.
struct RowCounts {
  int64_t read = 0, used = 0;
  int64_t cut = 0;      ///< a response was shortened to max_length
  int64_t dropped = 0;  ///< the prompt alone filled max_length (drop_overlong)
  int64_t merged = 0;   ///< prompt and response would share a token: encoded apart, as in use
};

struct PreferenceData {
  std::string path;
  std::vector<PreferencePair> pairs;
  RowCounts counts;
};

/// One response to learn.
struct Example {
  int64_t line = 0;  ///< in its file, from 1
  Sequence sequence;
  double weight = 1;            ///< column `weight`
  std::vector<Message> prompt;  ///< as read; empty for a plain text
  std::string text;             ///< the response
  /// Numbers of each token that is learnt: "privacy", 1 where a text of the column `private` stands, where a file has one.
  std::map<std::string, std::vector<double>> numbers = {};
};

struct SupervisedData {
  std::string path;
  std::vector<Example> examples;
  RowCounts counts;
};

/// Reads responses in TRL's columns: `messages`, whose last answer is learnt; `prompt` and `completion`, as strings or lists of
/// messages; or `text`, all of which is learnt. Optionally `weight`, and `private`: texts of the response that are. Errors name
/// file and line.
SupervisedData load_supervised(const std::filesystem::path& path, const Model& model, const DataOptions& options);

/// Reads preferences in TRL's columns: `prompt`, `chosen`, `rejected` as strings or lists of messages, or only `chosen` and
/// `rejected` with the conversation in both; or single responses as `prompt`, `completion` and `label`, good ones as chosen
/// and bad ones as rejected; optionally `weight`. Errors name file and line.
PreferenceData load_preferences(const std::filesystem::path& path, const Model& model, const DataOptions& options);

/// The prompts of a file, whatever it was made for: rows of preferences, with the chosen response, or as load_supervised
/// reads them.
SupervisedData load_prompts(const std::filesystem::path& path, const Model& model, const DataOptions& options);

/// A prompt and its response as ids. The prompt's ids are what they will be in use, where the model continues them: if the
/// text would merge a token across the border, the response is encoded by itself. `merged` counts that.
Sequence encode_response(const Model& model, const std::vector<Message>& prompt, const std::string& response,
                         DataOptions::TextFormat format, int64_t* merged = nullptr);

/// The same of a row as load_supervised encodes it: cut to max_length, and with an empty prompt a plain text.
Sequence encode_row(const Model& model, const std::vector<Message>& prompt, const std::string& text,
                    const DataOptions& options);

/// The prompt alone, ready to be continued.
std::vector<int32_t> encode_prompt(const Model& model, const std::vector<Message>& prompt,
                                   DataOptions::TextFormat format);

/// "lines 3 and 17 of pairs.jsonl".
std::string described_lines(std::vector<int64_t> lines, const std::string& path);

/// Splits off a share of the rows, drawn by seed, as held-out data.
PreferenceData hold_out(PreferenceData& data, double share, uint64_t seed);
SupervisedData hold_out(SupervisedData& data, double share, uint64_t seed);

}  // namespace kullback
