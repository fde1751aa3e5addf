#include "cli/compare_tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kullback/report/table.h"
#include "kullback/text/token_class.h"
#include "kullback/train/places.h"

namespace kullback {
namespace {

using Named = std::map<std::string, Interval>;

std::string token_text(const Model& model, int32_t token) {
  return Json(model.text().decode_text({&token, 1}, /*skip_special=*/false)).dump();
}

Table figure_table(std::string title) {
  return {.title = std::move(title),
          .columns = {text_column("figure"), number_column("value", significant(4)), text_column("unit")},
          .rows = {}};
}

void add(Table& table, const std::string& title, const Interval& value, const std::string& unit) {
  table.rows.push_back({Cell(title), Cell(value), Cell(unit)});
}

/// "KL(A || B)" where A and B are these.
std::string with_names(std::string title, const std::string& a, const std::string& b) {
  for (char& c : title) {
    if (c == 'A' || c == 'B') c = c == 'A' ? a[0] : b[0];
  }
  return title;
}

/// Of compare_models, `a` and `b` being what its A and B are called.
void add_measures(Table& table, const Named& figures, const std::string& a, const std::string& b) {
  for (const ComparedMeasure& m : compared_measures())
    add(table, with_names(m.title, a, b), figures.at(m.figure), m.unit);
  add(table, "both have the same likeliest token", figures.at("agreement"), "share");
  for (const auto& [figure, who] : {std::pair{"loss_a", a}, {"loss_b", b}}) {
    const Interval loss = figures.at(figure);
    add(table, fmt::format("perplexity of {}", who), {std::exp(loss.value), std::exp(loss.low), std::exp(loss.high)},
        "");
  }
}

Table sample_table(const SampledSide& side, const ComparisonReport& report) {
  Table table = figure_table(fmt::format("On responses drawn from {}, with 95 % intervals over prompts", side.from));
  const std::string kl = fmt::format("KL({} || {}) of whole responses, ", side.from, side.other);
  for (const auto& [figure, title] :
       {std::pair{"rb", "Rao-Blackwellised"}, {"k1", "k1, the log-ratio itself"}, {"k3", "k3"}})
    add(table, kl + title, side.figures.at(figure), "nats/response");
  add(table, "mean length", side.figures.at("length"), "tokens");
  if (!report.reward.empty()) add(table, "reward " + report.reward, side.figures.at("reward"), "");
  add_measures(table, side.figures, side.from, side.other);
  return table;
}

Table class_table(const Named& by_class) {
  Table table{.title = "By kind of token",
              .columns = {text_column("token"), number_column("KL(A || B)", significant(3), "nats/token"),
                          number_column("KL(B || A)", significant(3), "nats/token")},
              .rows = {}};
  for (const TokenClass one : token_classes()) {
    const std::string name = token_class_name(one);
    if (by_class.contains("kl " + name))
      table.rows.push_back({Cell(name), Cell(by_class.at("kl " + name)), Cell(by_class.at("reverse-kl " + name))});
  }
  return table;
}

Table best_table(const MeasuredBestOfN& best, const ComparisonReport& report) {
  Table table = figure_table(
      fmt::format("Best of {} from A by {}, estimated from {} draws a prompt", best.n, report.reward, best.draws));
  add(table, fmt::format("KL(best of {} || A)", best.n), best.kl, "nats/response");
  add(table, "its bound, log n - (n - 1) / n", {.value = best.bound}, "nats/response");
  add(table, "expected reward", best.reward, "");
  return table;
}

Table token_table(const ComparisonReport& report, const Model& model, int64_t count) {
  std::vector<TokenDifference> tokens = report.comparison.tokens;
  std::ranges::stable_sort(tokens, std::greater<>(), &TokenDifference::kl);
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(count)));
  Table table{
      .title = "Where they differ most",
      .columns = {number_column("line"), number_column("place"), text_column("the text has"), text_column("A says"),
                  text_column("B says"), number_column("KL(A || B)", significant(3), "nats"),
                  number_column("log A", significant(3)), number_column("log B", significant(3))},
      .rows = {}};
  for (const TokenDifference& t : tokens) {
    table.rows.push_back({Cell(report.responses[static_cast<size_t>(t.row)].line), Cell(t.place + 1),
                          Cell(token_text(model, t.token)), Cell(token_text(model, t.a_says)),
                          Cell(token_text(model, t.b_says)), Cell(t.kl), Cell(t.a_logp), Cell(t.b_logp)});
  }
  return table;
}

/// One row a response: where in the data they differ.
Table response_table(const ComparisonReport& report) {
  Table table{.title = "By response",
              .columns = {number_column("line"), number_column("tokens"),
                          number_column("KL(A || B)", significant(3), "nats/token"),
                          number_column("KL(B || A)", significant(3), "nats/token"),
                          number_column("agreement", percent(1)), text_column("it begins")},
              .rows = {}};
  for (size_t i = 0; i < report.responses.size(); ++i) {
    const Figures& row = report.comparison.rows[i];
    std::string beginning = report.responses[i].text.substr(0, 80);
    std::ranges::replace(beginning, '\n', ' ');
    table.rows.push_back({Cell(report.responses[i].line), Cell(static_cast<int64_t>(row.at("kl").count)),
                          Cell(row.at("kl").value()), Cell(row.at("reverse-kl").value()),
                          Cell(row.at("agreement").value()), Cell(std::move(beginning))});
  }
  return table;
}

Json figures_json(const Named& figures) {
  Json json = Json::object();
  for (const auto& [name, value] : figures) json[name] = figure_json(value);
  return json;
}

}  // namespace

std::vector<Table> comparison_tables(const ComparisonReport& report, const Model& model, int64_t tokens) {
  Table whole = figure_table("Mean over tokens of the given responses, with 95 % intervals over responses");
  add_measures(whole, report.figures, "A", "B");
  std::vector<Table> tables{std::move(whole), class_table(report.by_class)};
  for (const SampledSide& side : report.sampled) tables.push_back(sample_table(side, report));
  if (report.best) tables.push_back(best_table(*report.best, report));
  if (tokens > 0) tables.push_back(token_table(report, model, tokens));
  return tables;
}

std::vector<ShadedText> most_different(const ComparisonReport& report, const Model& model, size_t count) {
  const ModelComparison& comparison = report.comparison;
  std::vector<size_t> order(comparison.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return comparison.rows[i].at("kl").value(); });
  order.resize(std::min(order.size(), count));
  double full = 0;
  for (const TokenDifference& t : comparison.tokens) full = std::max(full, t.kl);
  std::vector<ShadedText> texts;
  for (const size_t row : order) {
    ShadedText text{.title = fmt::format("line {}", report.responses[row].line),
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
    texts.push_back(std::move(text));
  }
  return texts;
}

Plot comparison_by_place(const ComparisonReport& report) {
  Plot plot = place_plot(report.comparison.by_place, report.seed, {{"kl", "KL(A || B)"}, {"reverse-kl", "KL(B || A)"}});
  plot.title = "How far apart, by place in the response";
  plot.note = "exact, mean over tokens at each place, with 95 % intervals over responses";
  return plot;
}

Page comparison_page(const ComparisonReport& report, const Model& model, std::vector<Table> tables) {
  Page page{.title = "Two models compared",
            .summary = {"A: " + report.a, "B: " + report.b,
                        fmt::format("{} responses of {}, {} tokens; exact over the whole vocabulary",
                                    report.responses.size(), report.data, report.comparison.tokens.size())}};
  PageSection numbers{.title = "How far apart"};
  for (Table& table : tables) numbers.blocks.emplace_back(std::move(table));
  numbers.blocks.emplace_back(Plots{{comparison_by_place(report)}});
  page.sections.push_back(std::move(numbers));
  PageSection texts{.title = "The responses that differ most"};
  for (ShadedText& text : most_different(report, model, 12)) texts.blocks.emplace_back(std::move(text));
  page.sections.push_back(std::move(texts));
  page.sections.push_back({"All responses", {response_table(report)}});
  page.data = comparison_json(report);
  page.file_name = "comparison";
  return page;
}

Json comparison_json(const ComparisonReport& report) {
  Json json{{"a", report.a},
            {"b", report.b},
            {"data", report.data},
            {"responses", report.responses.size()},
            {"tokens", report.comparison.tokens.size()},
            {"figures", figures_json(report.figures)},
            {"by_class", Json::object()},
            {"by_response", Json::array()}};
  for (const TokenClass one : token_classes()) {
    const std::string name = token_class_name(one);
    if (!report.by_class.contains("kl " + name)) continue;
    json["by_class"][name] = {{"kl", figure_json(report.by_class.at("kl " + name))},
                              {"reverse-kl", figure_json(report.by_class.at("reverse-kl " + name))}};
  }
  for (size_t i = 0; i < report.responses.size(); ++i) {
    const Figures& row = report.comparison.rows[i];
    json["by_response"].push_back({{"line", report.responses[i].line},
                                   {"tokens", row.at("kl").count},
                                   {"kl", figure_json({row.at("kl").value()}).at("value")},
                                   {"reverse-kl", figure_json({row.at("reverse-kl").value()}).at("value")}});
  }
  if (!report.reward.empty()) json["reward"] = report.reward;
  for (const SampledSide& side : report.sampled)
    json["samples"][side.from == "A" ? "a" : "b"] = figures_json(side.figures);
  if (report.best) {
    json["best_of_n"] = {{"n", report.best->n},
                         {"draws", report.best->draws},
                         {"kl", figure_json(report.best->kl)},
                         {"kl_bound", report.best->bound},
                         {"reward", figure_json(report.best->reward)}};
  }
  return json;
}

}  // namespace kullback
