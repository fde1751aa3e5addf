// `kullback compare A B`: how far apart two models are, and where.
#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "cli/compare_tables.h"
#include "cli/judge.h"
#include "cli/model_pair.h"
#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/decode/best_of_n.h"
#include "kullback/io/files.h"
#include "kullback/report/progress.h"
#include "kullback/report/shaded.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  enum class From { a, b, both } samples_from = From::a;
  std::string output, reward;
  WeightType a_weights = WeightType::float32, b_weights = WeightType::float32;
  int64_t samples = 0;
  int64_t sample_tokens = 64;
  int64_t best_of = 0;
  int64_t tokens = 12;
  int64_t seed = 0;
  bool json = false;
};

const Options<CompareOptions>& compare_options() {
  using O = CompareOptions;
  static const auto options =
      Options<O>()
          .option("output", &O::output, "write report.html, comparison.json and the plots into this new folder")
          .option("a-weights", &O::a_weights, weight_types(),
                  "how A's matrices are kept, as in `kullback generate --weights`")
          .option("b-weights", &O::b_weights, weight_types(), "how B's are kept (an adapter's: as A's)")
          .option("samples", &O::samples, at_least(0),
                  "draw so many responses to each prompt too, and estimate the KL of whole responses from them")
          .option("samples-from", &O::samples_from, {{"a", O::From::a}, {"b", O::From::b}, {"both", O::From::both}},
                  "whose: A's give KL(A || B), B's give KL(B || A)")
          .option("sample-tokens", &O::sample_tokens, at_least(1), "length of those responses at most")
          .option("reward", &O::reward, "score the drawn responses: " + reward_grammar_text())
          .option("best-of", &O::best_of, at_least(0),
                  "KL and reward of the best of so many responses of A by --reward, beside the bound "
                  "log n - (n - 1) / n; --samples should be many times as large")
          .option("tokens", &O::tokens, at_least(0), "show so many of the tokens that the models differ most on")
          .option("seed", &O::seed, at_least(0), "of the samples and the intervals")
          .option("json", &O::json, "print JSON instead of tables");
  return options;
}

Command describe(CompareOptions& options, DataOptions& data, std::vector<std::string>& models) {
  Command command(
      "compare", "how far apart two models are, exactly, and on which tokens",
      "Reads responses as `kullback sft` does (or the chosen ones of preference pairs) and measures, at every token "
      "of\n"
      "them, the divergences between both models' next-token laws, over the whole vocabulary. A and B are names,\n"
      "GGUF files or Hugging Face folders of one tokenizer; B may be the folder of a PEFT adapter of A; one of them\n"
      "may be a file of `kullback teacher record`, made of the same data.");
  command.arguments("A B", &models, "the models; figures are of A against B", 2, 2)
      .options("Comparison", compare_options(), &options)
      .options("Data", measured_data_options(), &data)
      .example("kullback compare smollm2-135m-instruct runs/mine/adapter --data heldout.jsonl")
      .example("kullback compare before/ after/ --data rows.jsonl --samples 4 --samples-from both --output compared")
      .example("kullback compare before/ after/ --data rows.jsonl --samples 32 --reward length:words --best-of 4")
      .example("kullback compare my-model my-model --b-weights int8 --data heldout.jsonl");
  return command;
}

void check(const CompareOptions& o, const DataOptions& data) {
  if (data.data.empty()) fail("kullback compare: --data is missing");
  if (!o.reward.empty() && o.samples == 0) fail("option --reward: scores drawn responses; give --samples too");
  if (o.best_of == 0) return;
  if (o.reward.empty()) fail("option --best-of: the best by which --reward?");
  if (o.samples_from == CompareOptions::From::b)
    fail("option --best-of: takes the best of A's responses; give --samples-from a or both");
  if (o.samples < o.best_of) fail("option --best-of: {} of {} --samples", o.best_of, o.samples);
}

/// Best of n by the empirical law of each prompt's rewards.
MeasuredBestOfN measured_best(const std::vector<std::vector<double>>& rewards, int64_t n, uint64_t seed) {
  MeasuredBestOfN best{.n = n, .draws = std::ssize(rewards.front())};
  std::vector<Figures> rows;
  for (const std::vector<double>& of_prompt : rewards) {
    const std::vector<double> alike(of_prompt.size(), 1 / static_cast<double>(of_prompt.size()));
    const BestOfNLaw law = best_of_n_law(alike, of_prompt, n);
    rows.push_back({{"kl", {law.kl, 1}}, {"reward", {law.expected_reward, 1}}});
    best.bound = law.kl_bound;
  }
  const auto figures = bootstrap(rows, seed);
  best.kl = figures.at("kl"), best.reward = figures.at("reward");
  return best;
}

/// Draws from one side, and measures it against the other there.
void add_samples(ComparisonReport& report, const CompareOptions& o, const std::optional<Reward>& judge, bool from_a,
                 const ModelPair& pair, const ComparedSide& a, const ComparedSide& b) {
  const NamedModel& from = from_a ? pair.a : pair.b;
  if (from.model == nullptr)
    fail("option --samples-from: {} was recorded, and what was recorded draws no responses", from.name);
  const DrawOptions draw{.draws = o.samples, .max_tokens = o.sample_tokens, .seed = report.seed};
  const auto drawn = drawn_with_progress(*from.model, from.use, report.responses, draw);
  if (drawn.empty()) fail("{}: no row has a prompt to answer", report.data);
  std::vector<Figures> rows = compare_on_samples(from_a ? a : b, from_a ? b : a, drawn);
  if (judge) {
    const auto rewards = judged(*judge, drawn);
    for (size_t i = 0; i < rows.size(); ++i) rows[i]["reward"] = mean_of(rewards[i]);
    if (from_a && o.best_of > 0) report.best = measured_best(rewards, o.best_of, report.seed);
  }
  report.sampled.push_back(
      {.from = from_a ? "A" : "B", .other = from_a ? "B" : "A", .figures = bootstrap(rows, report.seed)});
}

int run(const std::vector<std::string>& given) {
  CompareOptions options;
  DataOptions data;
  std::vector<std::string> models;
  if (!describe(options, data, models).parse(given)) return exit_success;
  check(options, data);
  if (!options.output.empty()) check_new_folder(options.output);
  const std::optional<Reward> judge = options.reward.empty() ? std::nullopt : std::optional(reward(options.reward));
  const ModelPair pair = load_pair(models[0], models[1], options.a_weights, options.b_weights);
  SupervisedData rows = responses_of(data, pair.tokenizing());
  const auto [a, b] = compared_sides(pair, rows);
  std::erase_if(rows.examples, [](const Example& e) {  // nothing predicts a sequence's first token
    return std::ssize(e.sequence.ids) <= std::max<int64_t>(e.sequence.response_begin, 1);
  });
  if (rows.examples.empty()) fail("{}: holds no response with a token to compare on", data.data);
  ComparisonReport report{.a = models[0],
                          .b = models[1],
                          .data = data.data,
                          .reward = judge ? judge->name() : "",
                          .responses = std::move(rows.examples),
                          .comparison = {},
                          .figures = {},
                          .by_class = {},
                          .sampled = {},
                          .best = {},
                          .seed = static_cast<uint64_t>(options.seed)};
  Progress progress("compare", std::ssize(report.responses));
  report.comparison = compare_models(a, b, report.responses, [&](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  report.figures = bootstrap(report.comparison.rows, report.seed);
  report.by_class =
      bootstrap(figures_by_class(report.comparison, report.responses, pair.tokenizing().text()), report.seed);
  for (const bool from_a : {true, false}) {
    const auto other = from_a ? CompareOptions::From::b : CompareOptions::From::a;
    if (options.samples > 0 && options.samples_from != other) add_samples(report, options, judge, from_a, pair, a, b);
  }

  const std::vector<Table> tables = comparison_tables(report, pair.tokenizing(), options.tokens);
  if (options.json) {
    fmt::print("{}\n", comparison_json(report).dump(1));
  } else {
    const TerminalStyle style = terminal_style(stdout);
    for (const Table& table : tables) fmt::print("{}\n", table_terminal(table, style));
    for (const ShadedText& text : most_different(report, pair.tokenizing(), 3))
      fmt::print("{}\n", shaded_terminal(text, style));
  }
  if (options.output.empty()) return exit_success;
  NewFolder folder(options.output);
  write_file(folder.path() / "report.html", page_html(comparison_page(report, pair.tokenizing(), tables)));
  write_file(folder.path() / "comparison.json", comparison_json(report).dump(1) + "\n");
  write_file(folder.path() / "by-place.svg", svg(comparison_by_place(report)));
  folder.commit();
  if (!options.json) fmt::print("report   {}\n", (fs::path(options.output) / "report.html").string());
  return exit_success;
}

const RegisteredProgram program{{"compare", "how far apart two models are, exactly, and on which tokens",
                                 [] {
                                   static CompareOptions options;
                                   static DataOptions data;
                                   static std::vector<std::string> models;
                                   return describe(options, data, models);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
