// Fixtures of kinds "tokenizer" and "lm": what a model's tokenizer, template and weights make of given texts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kullback/base/error.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/model.h"
#include "kullback/lm/read.h"
#include "kullback/lm/score.h"
#include "kullback/text/golden.h"
#include "kullback/train/check_kinds.h"

namespace kullback {
namespace {

std::vector<int32_t> ids_of(const Json& list) { return list.get<std::vector<int32_t>>(); }

std::string text_or_empty(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

/// Where two lists of ids part, or nothing.
std::string first_difference(const std::vector<int32_t>& ours, const std::vector<int32_t>& expected) {
  if (ours == expected) return "";
  const size_t shorter = std::min(ours.size(), expected.size());
  size_t i = 0;
  while (i < shorter && ours[i] == expected[i]) ++i;
  if (i == shorter) return fmt::format("{} ids, expected {}", ours.size(), expected.size());
  return fmt::format("id {} is {}, expected {}", i, ours[i], expected[i]);
}

/// Numbers within a tolerance (absolute up to 1, relative above); keeps the worst in the result.
void compare_numbers(CheckResult& result, const std::string& name, std::span<const double> ours, const Json& expected,
                     double tolerance) {
  if (ours.size() != expected.size()) {
    result.passed = false;
    result.at = fmt::format("{} {}, expected {}", ours.size(), name, expected.size());
    return;
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const double y = expected[i].get<double>(), difference = std::fabs(ours[i] - y) / std::max(1.0, std::fabs(y));
    if (difference / tolerance > result.largest_difference / result.tolerance || result.at.empty()) {
      result.largest_difference = difference, result.tolerance = tolerance, result.at = fmt::format("{}[{}]", name, i);
    }
    if (!(difference <= tolerance)) result.passed = false;
  }
}

void mismatch(CheckResult& result, const std::string& text) {
  if (result.passed) result.at = text;
  result.passed = false;
  result.largest_difference = std::numeric_limits<double>::infinity();
}

CheckResult check_chat(const Json& one, const Model& model, double logp_tolerance, double logit_tolerance) {
  CheckResult result{.name = one.at("user").get<std::string>(), .passed = true, .tolerance = logp_tolerance, .at = ""};
  std::vector<Message> messages;
  if (!text_or_empty(one, "system").empty()) messages.push_back({"system", text_or_empty(one, "system")});
  messages.push_back({"user", one.at("user").get<std::string>()});
  const std::string rendered = model.chat_template().render(messages, /*add_generation_prompt=*/true);
  if (rendered != one.at("rendered").get<std::string>()) {
    mismatch(result, "the rendered prompt differs");
    return result;
  }
  const std::vector<int32_t> ids = model.text().encode(rendered);
  if (const std::string difference = first_difference(ids, ids_of(one.at("ids"))); !difference.empty()) {
    mismatch(result, difference);
    return result;
  }

  const Json top_logits = one.at("last_top8").at("logits");
  const auto top = static_cast<int64_t>(top_logits.size());
  const SequenceScores scores = score(model.transformer, {ids}, top).front();
  compare_numbers(result, "logps", scores.logps, one.at("logps"), logp_tolerance);
  compare_numbers(result, "entropy", scores.entropy, one.at("entropy"), logp_tolerance);
  compare_numbers(result, "logsumexp", scores.logsumexp, one.at("logsumexp"), logit_tolerance);
  const size_t last = (ids.size() - 1) * static_cast<size_t>(top);
  std::vector<double> logits;
  for (size_t i = 0; i < top_logits.size(); ++i) logits.push_back(scores.top_logps[last + i] + scores.logsumexp.back());
  compare_numbers(result, "top logits", logits, top_logits, logit_tolerance);
  const std::vector<int32_t> top_ids(scores.top_ids.begin() + static_cast<std::ptrdiff_t>(last),
                                     scores.top_ids.begin() + static_cast<std::ptrdiff_t>(last) + top);
  const std::vector<int32_t> expected_top = ids_of(one.at("last_top8").at("ids"));
  for (size_t i = 0; i + 1 < expected_top.size(); ++i) {
    const double gap = top_logits[i].get<double>() - top_logits[i + 1].get<double>();
    const double before = i == 0 ? 1 : top_logits[i - 1].get<double>() - top_logits[i].get<double>();
    if (top_ids[i] != expected_top[i] && std::min(gap, before) > 2 * logit_tolerance) {
      mismatch(result, fmt::format("top id {} is {}, expected {}", i, top_ids[i], expected_top[i]));
    }
  }

  const std::vector<int32_t> greedy = ids_of(one.at("greedy"));
  const GenerationOptions options{.sampling = {.temperature = 0},
                                  .max_new_tokens = static_cast<int64_t>(greedy.size()),
                                  .stop_ids = model.generation.stop_ids,
                                  .streams = {}};
  const Generated generated = generate(model.transformer, {ids}, options).front();
  if (const std::string difference = first_difference(generated.ids, greedy); !difference.empty())
    mismatch(result, "greedy: " + difference);
  if (model.text().decode(generated.ids) != one.at("greedy_text").get<std::string>())
    mismatch(result, "the greedy text differs");
  return result;
}

/// The tokenizer that lies beside the fixture, or the model's that is named.
Tokenizer tokenizer_of(const Json& fixture, const std::filesystem::path& file, const std::string& model) {
  if (model.empty() && !text_or_empty(fixture, "model").empty()) return fixture_model(fixture, file, model).text();
  if (const auto tokenizer = read_tokenizer(model.empty() ? file.parent_path() : std::filesystem::path(model)))
    return *tokenizer;
  return fixture_model(fixture, file, model).text();
}

}  // namespace

Model fixture_model(const Json& fixture, const std::filesystem::path& file, const std::string& model) {
  if (!model.empty()) return load_model(model);
  const std::string named = text_or_empty(fixture, "model");
  if (named.empty()) return load_model(file.parent_path().string());
  std::string lower = named;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return load_model(lower);
}

CheckReport check_tokenizer(const Json& fixture, const std::filesystem::path& file, const std::string& model_name) {
  const Tokenizer tokenizer = tokenizer_of(fixture, file, model_name);
  CheckReport report{.file = file.string(), .kind = "tokenizer", .results = {}};
  const auto run = [&](const char* key, const auto& difference) {
    if (!fixture.contains(key)) return;
    for (const Json& one : fixture[key]) {
      CheckResult result{.name = one.at("text").dump().substr(0, 60), .passed = true, .at = ""};
      if (const std::string text = difference(tokenizer, one); !text.empty()) mismatch(result, text);
      report.results.push_back(std::move(result));
    }
  };
  run("cases", golden_difference);
  run("pairs", golden_pair_difference);
  if (fixture.contains("latin1_ids")) {
    CheckResult result{.name = "the characters below U+0100 one by one", .passed = true, .at = ""};
    for (size_t code = 0; code < fixture["latin1_ids"].size(); ++code) {
      const std::string text =
          code < 128 ? std::string(1, static_cast<char>(code))
                     : std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      const std::string difference = first_difference(tokenizer.encode(text), ids_of(fixture["latin1_ids"][code]));
      if (!difference.empty()) mismatch(result, fmt::format("U+{:04X}: {}", code, difference));
    }
    report.results.push_back(std::move(result));
  }
  return report;
}

CheckReport check_language_model(const Json& fixture, const std::filesystem::path& file,
                                 const std::string& model_name) {
  const Model model = fixture_model(fixture, file, model_name);
  double logps = 2e-3, logits = 5e-3;
  if (fixture.contains("tolerance")) {
    logps = fixture["tolerance"].value("logps", logps);
    logits = fixture["tolerance"].value("logits", logits);
  }
  CheckReport report{.file = file.string(), .kind = "lm", .results = {}};
  for (const Json& one : fixture.at("cases")) report.results.push_back(check_chat(one, model, logps, logits));
  return report;
}

}  // namespace kullback
