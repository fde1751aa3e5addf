// `kullback compare A B`: how far apart two models are, and where.
#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/lora.h"
#include "kullback/measure/model_comparison.h"
#include "kullback/report/page.h"
#include "kullback/report/plot.h"
#include "kullback/report/progress.h"
#include "kullback/report/table.h"
#include "kullback/train/places.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  std::string output;
  WeightType a_weights = WeightType::float32, b_weights = WeightType::float32;
  int64_t samples = 0;
  int64_t sample_tokens = 64;
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
          .option(
              "samples", &O::samples, at_least(0),
              "draw so many responses of A to each prompt too, and estimate KL(A || B) of whole responses from them")
          .option("sample-tokens", &O::sample_tokens, at_least(1), "length of those responses at most")
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
      "GGUF files or Hugging Face folders of one tokenizer; B may be the folder of a PEFT adapter of A.");
  command.arguments("A B", &models, "the models; figures are of A against B", 2, 2)
      .options("Comparison", compare_options(), &options)
      .options("Data", data_options(), &data)
      .example("kullback compare smollm2-135m-instruct runs/mine/adapter --data heldout.jsonl")
      .example("kullback compare before/ after/ --data rows.jsonl --samples 4 --output compared")
      .example("kullback compare my-model my-model --b-weights int8 --data heldout.jsonl");
  return command;
}

/// The data's responses; of preference pairs the chosen ones.
std::vector<Example> responses_of(const DataOptions& data, const Model& model) {
  bool pairs = false, first = true;
  read_jsonl(data.data, [&](int64_t, const Json& row) {
    if (std::exchange(first, false)) pairs = row.contains("chosen");
  });
  if (!pairs) return load_supervised(data.data, model, data).examples;
  std::vector<Example> all;
  for (PreferencePair& pair : load_preferences(data.data, model, data).pairs) {
    all.push_back({.line = pair.line,
                   .sequence = std::move(pair.chosen),
                   .prompt = std::move(pair.prompt),
                   .text = std::move(pair.chosen_text)});
  }
  return all;
}

/// The two models, kept alive beside what refers to them.
struct Pair {
  Model a;
  std::optional<Model> other;
  Reference first, second;
};

void load(Pair& pair, const std::vector<std::string>& names, const CompareOptions& options) {
  pair.a = load_model(names[0], at::kFloat, options.a_weights);
  if (fs::exists(fs::path(names[1]) / "adapter_config.json")) {  // one model, its adapter off and on
    load_adapter(pair.a.transformer, names[1]);
    pair.first = {&pair.a.transformer, AdapterUse::off};
    pair.second = {&pair.a.transformer, AdapterUse::on};
    return;
  }
  pair.other = load_model(names[1], at::kFloat, options.b_weights);
  pair.first = {&pair.a.transformer, AdapterUse::on};
  pair.second = {&pair.other->transformer, AdapterUse::on};
}

std::string token_text(const Model& model, int32_t token) {
  return Json(model.text().decode_text({&token, 1}, /*skip_special=*/false)).dump();
}

Table figure_table(const std::map<std::string, Interval>& figures) {
  Table table{.title = "Mean over tokens, with 95 % intervals over responses",
              .columns = {text_column("figure"), number_column("value", significant(4)), text_column("unit")},
              .rows = {}};
  const auto add = [&](const std::string& title, const Interval& value, const std::string& unit) {
    table.rows.push_back({Cell(title), Cell(value), Cell(unit)});
  };
  for (const ComparedMeasure& m : compared_measures()) add(m.title, figures.at(m.figure), m.unit);
  add("both have the same likeliest token", figures.at("agreement"), "share");
  for (const auto& [figure, who] : {std::pair{"loss_a", "A"}, {"loss_b", "B"}}) {
    const Interval loss = figures.at(figure);
    add(fmt::format("perplexity of {}", who), {std::exp(loss.value), std::exp(loss.low), std::exp(loss.high)}, "");
  }
  return table;
}

Table sample_table(const std::map<std::string, Interval>& figures) {
  Table table{.title = "KL(A || B) of whole responses, estimated from samples of A",
              .columns = {text_column("estimator"), number_column("value", significant(4)), text_column("unit")},
              .rows = {}};
  table.rows = {{Cell("k1, the log-ratio itself"), Cell(figures.at("sampled k1")), Cell("nats/response")},
                {Cell("k3"), Cell(figures.at("sampled k3")), Cell("nats/response")},
                {Cell("Rao-Blackwellised"), Cell(figures.at("sampled rb")), Cell("nats/response")},
                {Cell("mean length"), Cell(figures.at("sampled length")), Cell("tokens")}};
  return table;
}

std::vector<TokenDifference> most_different(std::vector<TokenDifference> tokens, int64_t count) {
  std::ranges::stable_sort(tokens, std::greater<>(), &TokenDifference::kl);
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(count)));
  return tokens;
}

Table token_table(const std::vector<TokenDifference>& tokens, const Model& model,
                  const std::vector<Example>& responses) {
  Table table{
      .title = "Where they differ most",
      .columns = {number_column("line"), number_column("place"), text_column("the text has"), text_column("A says"),
                  text_column("B says"), number_column("KL(A || B)", significant(3), "nats"),
                  number_column("log A", significant(3)), number_column("log B", significant(3))},
      .rows = {}};
  for (const TokenDifference& t : tokens) {
    table.rows.push_back({Cell(responses[static_cast<size_t>(t.row)].line), Cell(t.place + 1),
                          Cell(token_text(model, t.token)), Cell(token_text(model, t.a_says)),
                          Cell(token_text(model, t.b_says)), Cell(t.kl), Cell(t.a_logp), Cell(t.b_logp)});
  }
  return table;
}

/// The responses with the largest KL a token, each token shaded by its own.
std::vector<Block> shaded_texts(const ModelComparison& comparison, const Model& model,
                                const std::vector<Example>& responses) {
  std::vector<size_t> order(comparison.rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return comparison.rows[i].at("kl").value(); });
  order.resize(std::min<size_t>(order.size(), 12));
  double full = 0;
  for (const TokenDifference& t : comparison.tokens) full = std::max(full, t.kl);
  std::vector<Block> blocks;
  for (const size_t row : order) {
    ShadedText text{.title = fmt::format("line {}", responses[row].line),
                    .value_name = "KL(A || B)",
                    .unit = "nats",
                    .pieces = {},
                    .full = std::min(full, 2.0)};
    for (const TokenDifference& t : comparison.tokens) {
      if (t.row != static_cast<int64_t>(row)) continue;
      text.pieces.push_back(
          {model.text().decode_text({&t.token, 1}, false), t.kl,
           fmt::format("A says {}, B says {}", token_text(model, t.a_says), token_text(model, t.b_says))});
    }
    blocks.emplace_back(std::move(text));
  }
  return blocks;
}

Json json_of(const std::map<std::string, Interval>& figures, const std::vector<std::string>& models, size_t responses,
             size_t tokens) {
  Json json{
      {"a", models[0]}, {"b", models[1]}, {"responses", responses}, {"tokens", tokens}, {"figures", Json::object()}};
  const auto number = [](double v) { return std::isfinite(v) ? Json(v) : Json(fmt::format("{}", v)); };
  for (const auto& [name, v] : figures)
    json["figures"][name] = {{"value", number(v.value)}, {"low", number(v.low)}, {"high", number(v.high)}};
  return json;
}

int run(const std::vector<std::string>& given) {
  CompareOptions options;
  DataOptions data;
  std::vector<std::string> models;
  if (!describe(options, data, models).parse(given)) return exit_success;
  if (data.data.empty()) fail("kullback compare: --data is missing");
  if (!options.output.empty()) check_new_folder(options.output);
  Pair pair;
  load(pair, models, options);
  std::vector<Example> responses = responses_of(data, pair.a);
  std::erase_if(responses, [](const Example& e) { return e.sequence.counted() == 0; });
  if (responses.empty()) fail("{}: holds no response with a token to compare on", data.data);
  const auto seed = static_cast<uint64_t>(options.seed);

  Progress progress("compare", std::ssize(responses));
  const ModelComparison comparison =
      compare_models(pair.first, pair.second, responses, [&](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  std::map<std::string, Interval> figures = bootstrap(comparison.rows, seed);
  if (options.samples > 0) {
    Progress drawn("sample", std::ssize(responses));
    const auto rows =
        sampled_sequence_kl(pair.a, pair.first, pair.second, responses, options.samples, options.sample_tokens, seed,
                            [&](int64_t done, int64_t) { drawn.update(done); });
    drawn.finish();
    figures.merge(bootstrap(rows, seed));
  }
  const Json json = json_of(figures, models, responses.size(), comparison.tokens.size());
  std::vector<Table> tables{figure_table(figures)};
  if (options.samples > 0) tables.push_back(sample_table(figures));
  tables.push_back(token_table(most_different(comparison.tokens, options.tokens), pair.a, responses));
  if (options.json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    for (const Table& table : tables) fmt::print("{}\n", table_terminal(table, terminal_style(stdout)));
  }
  if (options.output.empty()) return exit_success;

  NewFolder folder(options.output);
  Page page{.title = "Two models compared",
            .summary = {"A: " + models[0], "B: " + models[1],
                        fmt::format("{} responses of {}, {} tokens; exact over the whole vocabulary", responses.size(),
                                    data.data, comparison.tokens.size())}};
  PageSection numbers{.title = "How far apart"};
  for (const Table& table : tables) numbers.blocks.emplace_back(table);
  Plot plot = place_plot(comparison.by_place, seed, {{"kl", "KL(A || B)"}, {"reverse-kl", "KL(B || A)"}});
  plot.title = "How far apart, by place in the response";
  plot.note = "exact, mean over tokens at each place, with 95 % intervals over responses";
  numbers.blocks.emplace_back(Plots{{plot}});
  page.sections.push_back(std::move(numbers));
  page.sections.push_back({"The responses that differ most", shaded_texts(comparison, pair.a, responses)});
  page.data = json;
  page.file_name = "comparison";
  write_file(folder.path() / "report.html", page_html(page));
  write_file(folder.path() / "comparison.json", json.dump(1) + "\n");
  write_file(folder.path() / "by-place.svg", svg(plot));
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
