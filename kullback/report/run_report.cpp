#include "kullback/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"

namespace kullback {
namespace {

constexpr std::size_t steps_worth_a_mean = 40;

/// "eval/rewards/chosen": data "eval", quantity "rewards", part "chosen".
struct MetricName {
  std::string data, quantity, part;
};

MetricName parsed(std::string_view name) {
  static const std::set<std::string_view> data_names{"train", "eval", "test", "validation", "held-out"};
  MetricName result;
  const std::size_t first = name.find('/');
  if (first != std::string_view::npos && data_names.contains(name.substr(0, first))) {
    result.data = name.substr(0, first);
    name.remove_prefix(first + 1);
  }
  const std::size_t last = name.rfind('/');
  result.quantity = name.substr(0, last);
  if (last != std::string_view::npos) result.part = name.substr(last + 1);
  return result;
}

std::string joined(const std::string& a, const std::string& b) { return a + (a.empty() || b.empty() ? "" : ", ") + b; }

std::string spaced(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string with_capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::vector<double> running_mean(const std::vector<double>& values, std::size_t window) {
  std::vector<double> means(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Centred, so that the curve is not shifted; at the ends the window is cut.
    const std::size_t begin = i - std::min(i, window / 2), end = std::min(values.size(), i + window / 2 + 1);
    double sum = 0, count = 0;
    for (std::size_t j = begin; j < end; ++j) {
      if (std::isfinite(values[j])) sum += values[j], ++count;
    }
    means[i] = count > 0 ? sum / count : std::nan("");
  }
  return means;
}

// The way up and down over the range: 1 for a monotone curve, large for noise.
bool is_noisy(const std::vector<double>& values) {
  double way = 0, low = HUGE_VAL, high = -HUGE_VAL, last = std::nan("");
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    if (std::isfinite(last)) way += std::abs(value - last);
    low = std::min(low, value);
    high = std::max(high, value);
    last = value;
  }
  return values.size() >= steps_worth_a_mean && way > 4 * (high - low);
}

// Noisy values of single steps are drawn pale behind their running mean.
void add_metric(Plot& plot, const MetricSeries& metric, const MetricName& name, int colour) {
  Series series{.name = joined(name.data, spaced(name.part)),
                .x = metric.step,
                .y = metric.value,
                .low = metric.low,
                .high = metric.high,
                .colour = colour};
  if (!metric.low.empty() || !is_noisy(metric.value)) {
    plot.series.push_back(std::move(series));
    return;
  }
  const std::size_t window = std::max<std::size_t>(5, metric.value.size() / 20 | 1);
  Series mean = series;
  mean.name = joined(series.name, fmt::format("mean of {} steps", window));
  mean.y = running_mean(metric.value, window);
  series.faint = true;
  if (series.name.empty()) series.name = "each step";
  plot.series.push_back(std::move(series));
  plot.series.push_back(std::move(mean));
}

std::string file_name(std::string_view title) {
  std::string name;
  for (const char c : title) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) {
      name += c;
    } else if (c >= 'A' && c <= 'Z') {
      name += static_cast<char>(c - 'A' + 'a');
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.size() > 80) name.resize(80);
  return name.empty() ? "plot" : name;
}

Table held_out_table(const std::vector<HeldOutMeasure>& measures) {
  Table table;
  table.columns = {text_column("Measure"), {"Before", Align::right}, {"After", Align::right}, {"Change", Align::right}};
  for (const HeldOutMeasure& measure : measures) {
    const double change = measure.after.value - measure.before.value;
    std::string change_text;
    if (std::isfinite(change)) {
      const bool percents = measure.format.kind == NumberFormat::Kind::percent;
      change_text = percents ? number_text(100 * change, fixed(measure.format.digits)) + " points"
                             : number_text(change, measure.format);
      if (change > 0) change_text.insert(0, "+");
    }
    const auto cell = [&](const Interval& interval) {
      return std::isnan(interval.value) ? Cell() : Cell(interval).with(measure.format);
    };
    const std::string name = measure.unit.empty() ? measure.name : fmt::format("{} ({})", measure.name, measure.unit);
    table.rows.push_back({name, cell(measure.before), cell(measure.after),
                          Cell(change_text, change_tone(measure.before, measure.after, measure.better))});
  }
  return table;
}

PageSection held_out_section(const RunReport& report) {
  PageSection section{"Held out: before and after", {}};
  section.blocks.push_back(held_out_table(report.held_out));
  const bool intervals =
      std::any_of(report.held_out.begin(), report.held_out.end(), [](const auto& m) { return m.after.has_bounds(); });
  if (intervals) {
    section.blocks.push_back(
        Paragraph{"In brackets: 95% intervals. A change is coloured where the intervals of before and after lie apart.",
                  Paragraph::Kind::muted});
  }
  for (const HeldOutMeasure& measure : report.held_out) {
    if (!measure.explanation.empty())
      section.blocks.push_back(
          Paragraph{with_capital(measure.name) + ": " + measure.explanation, Paragraph::Kind::muted});
  }
  return section;
}

Samples samples_block(const std::vector<RunSample>& samples) {
  Samples block;
  for (const RunSample& sample : samples) {
    Sample one{sample.prompt, {{"Before", sample.before, ""}, {"After", sample.after, ""}}};
    if (!sample.chosen.empty()) one.answers.push_back({"Chosen in the data", sample.chosen, ""});
    if (!sample.rejected.empty()) one.answers.push_back({"Rejected in the data", sample.rejected, ""});
    block.samples.push_back(std::move(one));
  }
  return block;
}

PageSection facts_section(const RunReport& report) {
  PageSection section{"Data and resources", {}};
  if (!report.rows.empty()) {
    Table table{"Rows", {text_column("What became of them"), number_column("Rows")}, {}};
    for (const auto& [name, count] : report.rows) table.rows.push_back({name, count});
    section.blocks.push_back(std::move(table));
  }
  if (!report.resources.empty()) {
    Table table{"Resources", {text_column("What"), {"Used", Align::right}}, {}};
    for (const auto& [name, used] : report.resources) table.rows.push_back({name, used});
    section.blocks.push_back(std::move(table));
  }
  return section;
}

struct Collector {
  std::vector<MetricSeries> series;
  std::map<std::string, std::size_t> place;

  void add(const std::string& name, double step, double value) {
    const auto [found, is_new] = place.try_emplace(name, series.size());
    if (is_new) series.push_back({name, {}, {}});
    MetricSeries& one = series[found->second];
    while (!one.step.empty() && one.step.back() >= step) {
      one.step.pop_back();
      one.value.pop_back();
    }
    one.step.push_back(step);
    one.value.push_back(value);
  }

  void add_all(const std::string& prefix, const Json& object, double step) {
    for (const auto& [key, value] : object.items()) {
      if (prefix.empty() && key == "step") continue;
      const std::string name = prefix + key;
      if (value.is_number()) add(name, step, value.get<double>());
      if (value.is_null()) add(name, step, std::nan(""));
      if (value.is_object()) add_all(name + "/", value, step);
    }
  }
};

}  // namespace

MetricMeaning metric_meaning(std::string_view name) {
  static const std::map<std::string_view, MetricMeaning> known{
      {"loss", {"Loss"}},
      {"accuracy", {"Preference accuracy", "share of pairs"}},
      {"margin", {"Reward margin", "nats"}},
      {"margins", {"Reward margin", "nats"}},
      {"rewards", {"Implicit reward", "nats"}},
      {"reward", {"Reward"}},
      {"logps", {"Log-probability of the response", "nats"}},
      {"kl", {"KL(policy ‖ reference)", "nats/token"}},
      {"reverse_kl", {"KL(reference ‖ policy)", "nats/token"}},
      {"likelier", {"Chosen is likelier a token", "share of pairs"}},
      {"token_logps", {"Log-probability", "nats/token"}},
      {"entropy", {"Entropy", "nats/token"}},
      {"grad_norm", {"Gradient norm"}},
      {"gradient_norm", {"Gradient norm"}},
      {"learning_rate", {"Learning rate"}},
      {"lr", {"Learning rate"}},
      {"beta", {"β"}},
      {"multiplier", {"Multiplier of the limit"}},
      {"limit", {"Divergence under a limit"}},
      {"sequence_kl", {"KL(policy ‖ reference) of responses", "nats/response"}},
      {"sequence_reverse_kl", {"KL(reference ‖ policy) of responses", "nats/response"}},
      {"sequence_tv", {"Total variation, summed over responses"}},
      {"sequence_chi2", {"χ², summed over responses"}},
      {"sequence_entropy", {"Entropy of responses", "nats/response"}},
      {"forward_kl", {"KL(teacher ‖ student)", "nats/token"}},
      {"backward_kl", {"KL(student ‖ teacher)", "nats/token"}},
      {"js", {"Jensen-Shannon", "nats/token"}},
      {"hellinger", {"Squared Hellinger"}},
      {"agreement", {"Same likeliest token", "share of tokens"}},
      {"tv", {"Total variation"}},
      {"chi2", {"χ² of policy and reference"}},
      {"tokens_per_second", {"Speed", "tokens/s"}},
      {"seconds_per_step", {"Time a step", "s"}},
      {"memory", {"Memory", "bytes"}},
      {"perplexity", {"Perplexity"}},
      {"response_length", {"Response length", "tokens"}},
  };
  const auto found = known.find(name);
  return found != known.end() ? found->second : MetricMeaning{with_capital(spaced(name))};
}

/// "x_low" and "x_high" are the interval of "x" where they were logged at the same steps: no series of their own.
static std::vector<MetricSeries> with_intervals(std::vector<MetricSeries> all) {
  std::map<std::string, const MetricSeries*> by_name;
  for (const MetricSeries& one : all) by_name[one.name] = &one;
  std::vector<MetricSeries> kept;
  std::set<std::string> bounds;
  for (const MetricSeries& one : all) {
    const auto low = by_name.find(one.name + "_low"), high = by_name.find(one.name + "_high");
    if (low == by_name.end() || high == by_name.end()) continue;
    if (low->second->step == one.step && high->second->step == one.step) bounds.insert({low->first, high->first});
  }
  for (const MetricSeries& one : all) {
    if (bounds.contains(one.name)) continue;
    kept.push_back(one);
    if (!bounds.contains(one.name + "_low")) continue;
    kept.back().low = by_name[one.name + "_low"]->value;
    kept.back().high = by_name[one.name + "_high"]->value;
  }
  return kept;
}

std::vector<MetricSeries> read_metrics(const std::filesystem::path& path) {
  Collector collector;
  read_jsonl(path, [&](std::int64_t line, const Json& row) {
    const auto step = row.find("step");
    if (step == row.end() || !step->is_number()) fail("{}: line {}: no number \"step\"", path.string(), line);
    collector.add_all("", row, step->get<double>());
  });
  return with_intervals(std::move(collector.series));
}

std::vector<std::pair<std::string, Plot>> run_plots(const RunReport& report) {
  static const std::set<std::string_view> not_drawn{"epoch", "time", "wall_time", "seconds"};
  std::vector<std::pair<std::string, Plot>> plots;
  std::map<std::string, std::size_t> place;
  std::map<std::string, int> colours;
  // What a reader looks for first comes first; the rest in the order of the log.
  static const std::vector<std::string_view> first{"loss",  "accuracy",   "likelier", "margin",
                                                   "limit", "multiplier", "kl"};
  std::vector<MetricSeries> metrics = report.metrics;
  const auto rank = [](const MetricSeries& metric) {
    return std::find(first.begin(), first.end(), parsed(metric.name).quantity) - first.begin();
  };
  std::stable_sort(metrics.begin(), metrics.end(),
                   [&](const MetricSeries& a, const MetricSeries& b) { return rank(a) < rank(b); });
  for (const MetricSeries& metric : metrics) {
    const MetricName name = parsed(metric.name);
    if (not_drawn.contains(name.quantity)) continue;
    const auto [found, is_new] = place.try_emplace(name.quantity, plots.size());
    if (is_new) {
      const MetricMeaning meaning = metric_meaning(name.quantity);
      Plot plot;
      plot.title = meaning.title;
      plot.x.title = "Step";
      plot.y = {.title = meaning.title, .unit = meaning.unit, .scale = meaning.scale};
      plots.emplace_back(file_name(name.quantity), std::move(plot));
    }
    Plot& plot = plots[found->second].second;
    add_metric(plot, metric, name, colours[name.quantity]++);
  }
  for (const Plot& plot : report.plots) plots.emplace_back(file_name(plot.title), plot);
  std::set<std::string> taken;
  for (auto& [name, plot] : plots) {
    const std::string wanted = name;
    for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}-{}", wanted, n);
  }
  return plots;
}

Page run_page(const RunReport& report) {
  Page page;
  page.title = report.title;
  page.summary = report.summary;
  for (const HeldOutMeasure& m : report.held_out) {
    if (m.headline) page.numbers.push_back({with_capital(m.name), m.before, m.after, m.format, m.unit, m.better, ""});
  }
  if (!report.warnings.empty()) {
    PageSection section{"Warnings", {}};
    for (const std::string& warning : report.warnings)
      section.blocks.push_back(Paragraph{warning, Paragraph::Kind::warning});
    page.sections.push_back(std::move(section));
  }
  if (!report.held_out.empty()) page.sections.push_back(held_out_section(report));
  Plots plots;
  for (auto& [name, plot] : run_plots(report)) plots.plots.push_back(std::move(plot));
  if (!plots.plots.empty()) page.sections.push_back({"Training", {std::move(plots)}});
  if (!report.samples.empty()) page.sections.push_back({"Samples", {samples_block(report.samples)}});
  PageSection facts = facts_section(report);
  if (!facts.blocks.empty()) page.sections.push_back(std::move(facts));
  if (!report.configuration.empty())
    page.sections.push_back({"Configuration", {Code{"Resolved configuration (TOML)", report.configuration, true}}});
  page.data["configuration"] = report.configuration;
  page.file_name = "report";
  page.footer = "Made by Kullback. This page is complete in itself: it loads nothing from anywhere.";
  return page;
}

void write_run_report(const RunReport& report, const std::filesystem::path& folder) {
  const std::string page = page_html(run_page(report));
  const std::filesystem::path plots = folder / "plots";
  std::error_code error;
  std::filesystem::create_directories(plots, error);
  if (error) fail("{}: can't make the folder: {}", plots.string(), error.message());
  for (const auto& [name, plot] : run_plots(report)) write_file(plots / (name + ".svg"), svg(plot));
  write_file(folder / "report.html", page);
}

}  // namespace kullback
