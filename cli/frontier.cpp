// `kullback frontier RUN...`: what policies bought against how far they moved.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "cli/frontier_sources.h"
#include "cli/judge.h"
#include "cli/model_pair.h"
#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/measure/policy_figures.h"
#include "kullback/report/page.h"
#include "kullback/report/progress.h"
#include "kullback/report/run_report.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using Kind = FrontierSource::Kind;

struct FrontierOptions {
  std::string divergence, figure, reward, reference, output;
  int64_t samples = 4, sample_tokens = 64, seed = 0;
  bool json = false;
};

const Options<FrontierOptions>& frontier_options() {
  using O = FrontierOptions;
  static const auto options =
      Options<O>()
          .option("divergence", &O::divergence,
                  "how far: a held-out figure such as kl, reverse_kl, tv, chi2, sequence_kl or forward_kl; else the "
                  "first of kl and forward_kl that all have, and with --reward sequence_kl")
          .option("figure", &O::figure,
                  "what was bought: a held-out figure such as likelier, accuracy, margin, agreement or loss; else the "
                  "first of these that all have")
          .option(
              "reward", &O::reward,
              "instead: answer the prompts of --data with every policy and take the mean of " + reward_grammar_text())
          .option("reference", &O::reference,
                  "with --data: the model that divergences are measured from; else the one that the runs began with")
          .option("samples", &O::samples, at_least(1), "with --reward: answers to each prompt, drawn at temperature 1")
          .option("sample-tokens", &O::sample_tokens, at_least(1), "with --reward: length of an answer at most")
          .option("output", &O::output,
                  "write report.html, frontier.svg, frontier.csv and frontier.json into this new folder")
          .option("seed", &O::seed, at_least(0), "of the answers and the intervals")
          .option("json", &O::json, "print JSON instead of a table");
  return options;
}

Command describe(FrontierOptions& options, DataOptions& data, std::vector<std::string>& runs) {
  Command command(
      "frontier", "what any runs and checkpoints bought, against how far they moved, and which of them nothing beats",
      "RUN is a folder that align, sft or distill wrote (or one that holds several, of --method a,b,c or `kullback "
      "run`),\n"
      "a folder of `kullback compare` (B is the policy, A the reference), a look at an exact world (`kullback world\n"
      "--output`), which brings its exact frontier, or with --data any checkpoint: a model or an adapter. Without "
      "--data\n"
      "the numbers are those that the runs wrote; with it every policy is measured anew, on the same rows.");
  command.arguments("RUN", &runs, "runs, comparisons, worlds or checkpoints", 1)
      .options("Frontier", frontier_options(), &options)
      .options("Data", measured_data_options(), &data)
      .example("kullback frontier runs/first runs/ipo runs/near --output frontier")
      .example("kullback frontier runs/compared --figure accuracy --divergence reverse_kl")
      .example("kullback frontier runs/first runs/near --data heldout.jsonl --reward length:words --samples 8")
      .example("kullback world --method dpo --output worlds/dpo && kullback frontier worlds/dpo");
  return command;
}

/// All that is shown.
struct Frontier {
  std::vector<FrontierEntry> entries;
  std::vector<FrontierCurve> curves;
  std::vector<double> most;  ///< of each entry, on the exact frontier; empty where there is none
  std::string divergence, reward;
  Axis x, y;
  std::string note, caution;  ///< the latter may be empty
  Better better = Better::higher;
};

/// Figures of which less is better.
Better better_of(const std::string& figure) {
  static const std::vector<std::string> costs{"loss",       "perplexity", "forward_kl", "backward_kl",      "js",
                                              "teacher_tv", "kl",         "reverse_kl", "calibration_error"};
  return std::ranges::find(costs, figure) != costs.end() ? Better::lower : Better::higher;
}

Axis axis_of(const std::string& figure) {
  const MetricMeaning meaning = metric_meaning(figure);
  return {.title = meaning.title, .unit = meaning.unit};
}

/// The wanted figure, or the first of `otherwise` that all policies have. `what`: the option that chooses it.
std::string chosen_figure(const std::vector<EvaluatedPolicy>& all, const std::string& wanted,
                          const std::vector<std::string>& otherwise, const std::string& what) {
  std::vector<std::string> common;
  for (const auto& [name, value] : all.front().after) {
    if (std::ranges::all_of(all, [&name = name](const EvaluatedPolicy& one) { return one.after.contains(name); }))
      common.push_back(name);
  }
  const auto has = [&](const std::string& name) { return std::ranges::find(common, name) != common.end(); };
  if (!wanted.empty() && has(wanted)) return wanted;
  if (wanted.empty()) {
    const auto found = std::ranges::find_if(otherwise, has);
    if (found != otherwise.end()) return *found;
  }
  if (common.empty()) fail("option --{}: there is no figure that all of the runs have", what);
  fail("option --{}: {}{}; all of the runs have {}", what,
       wanted.empty() ? "which? None is usual for these" : fmt::format("not all of the runs have \"{}\"", wanted),
       wanted.empty() ? "" : suggestion(wanted, common), listing(common));
}

/// Entries of the policies after training, and of what they began with, once where it is the same for all that wrote it; how
/// many beginnings there are.
size_t add_entries(Frontier& frontier, const std::vector<EvaluatedPolicy>& all) {
  std::vector<std::string> paths;
  for (const EvaluatedPolicy& one : all) paths.push_back(one.name);
  const std::vector<std::string> names = short_names(paths);
  std::vector<FrontierEntry> beginnings;
  for (size_t i = 0; i < all.size(); ++i) {
    frontier.entries.push_back({.name = names[i],
                                .divergence = all[i].after.at(frontier.divergence),
                                .reward = all[i].after.at(frontier.reward)});
    const auto x = all[i].before.find(frontier.divergence), y = all[i].before.find(frontier.reward);
    if (x == all[i].before.end() || y == all[i].before.end()) continue;
    const auto same = [&](const FrontierEntry& other) {
      return other.divergence.value == x->second.value && other.reward.value == y->second.value;
    };
    if (std::ranges::none_of(beginnings, same))
      beginnings.push_back({.name = "before " + names[i], .divergence = x->second, .reward = y->second});
  }
  if (beginnings.size() == 1) beginnings[0].name = "before";
  frontier.entries.insert(frontier.entries.begin(), beginnings.begin(), beginnings.end());
  return beginnings.size();
}

const std::vector<std::string> usual_divergences{"kl", "forward_kl"};
const std::vector<std::string> usual_figures{"likelier", "accuracy", "margin", "reward", "agreement", "loss"};

Frontier of_figures(const std::vector<EvaluatedPolicy>& all, const FrontierOptions& o) {
  Frontier frontier;
  frontier.divergence = chosen_figure(all, o.divergence, usual_divergences, "divergence");
  frontier.reward = chosen_figure(all, o.figure, usual_figures, "figure");
  if (frontier.divergence == frontier.reward) fail("option --figure: {} is the divergence", frontier.reward);
  frontier.x = axis_of(frontier.divergence), frontier.y = axis_of(frontier.reward);
  frontier.better = better_of(frontier.reward);
  frontier.note = "held out, with 95 % intervals over rows";
  if (add_entries(frontier, all) > 1) {
    frontier.caution =
        "The runs began with different figures: with other models, or measured on other held-out rows, where figures "
        "cannot be compared. --data FILE measures all of them on the same rows.";
  }
  return frontier;
}

Frontier of_worlds(const std::vector<FrontierSource>& sources) {
  Frontier frontier;
  std::vector<std::string> paths;
  for (const FrontierSource& one : sources) paths.push_back(one.path);
  const std::vector<std::string> names = short_names(paths);
  std::vector<Json> seen;
  std::vector<size_t> whose;  // the source of each entry
  for (size_t i = 0; i < sources.size(); ++i) {
    ExactWorld world = read_world(sources[i].path);
    const bool is_new = std::ranges::find(seen, world.options) == seen.end();
    if (is_new) {
      seen.push_back(world.options);
      if (seen.size() > 1) world.frontier.name += " of " + names[i];
      frontier.curves.push_back(world.frontier);
    }
    for (size_t k = 0; k < world.entries.size(); ++k) {
      FrontierEntry& entry = world.entries[k];
      const auto same = [&](const FrontierEntry& other) {
        return other.divergence.value == entry.divergence.value && other.reward.value == entry.reward.value;
      };
      if (!is_new && std::ranges::any_of(frontier.entries, same)) continue;  // the world's own landmarks
      whose.push_back(i);
      frontier.entries.push_back(std::move(entry));
      frontier.most.push_back(world.most[k]);
    }
  }
  std::map<std::string, int> alike;
  for (const FrontierEntry& entry : frontier.entries) ++alike[entry.name];
  for (size_t k = 0; k < frontier.entries.size(); ++k) {
    std::string& name = frontier.entries[k].name;
    if (alike.at(name) > 1) name = fmt::format("{} of {}", name, names[whose[k]]);
  }
  frontier.divergence = "kl", frontier.reward = "reward";
  frontier.x = {.title = "KL(policy || reference)", .unit = "nats/response"};
  frontier.y = {.title = "Expected reward"};
  frontier.note = "exact, by enumeration";
  return frontier;
}

/// The reference of all that is measured: as asked for, or the model that the runs began with.
std::string reference_of(const std::vector<FrontierSource>& sources, const FrontierOptions& o) {
  std::string found = o.reference;
  for (const FrontierSource& one : sources) {
    const std::string beginning = beginning_of(one);
    if (beginning.empty()) continue;
    if (found.empty()) found = beginning;
    if (found != beginning && is_adapter_folder(checkpoint_of(one)))
      fail("{}: its adapter is one of {}, not of the reference {}", one.path, beginning, found);
    if (found != beginning && o.reference.empty())
      fail("option --reference: the runs began with {} and {}; which?", found, beginning);
  }
  if (found.empty()) fail("option --reference: what do these checkpoints differ from? It is missing");
  return found;
}

/// Rows of figures of a policy on the data. With a reward: of its own answers.
std::vector<Figures> measured(const NamedModel& policy, const NamedModel& reference, const Model& reading,
                              const FrontierOptions& o, const DataOptions& data, const std::optional<Reward>& judge) {
  const ComparedSide of_policy = compared_side(policy.reference()), of_reference = compared_side(reference.reference());
  std::vector<Figures> rows;
  if (judge) {
    const DrawOptions draw{.draws = o.samples, .max_tokens = o.sample_tokens, .seed = static_cast<uint64_t>(o.seed)};
    const auto drawn = drawn_with_progress(*policy.model, policy.use, responses_of(data, reading).examples, draw);
    if (drawn.empty()) fail("{}: no row has a prompt to answer", data.data);
    const auto rewards = judged(*judge, drawn);
    for (const Figures& row : compare_on_samples(of_policy, of_reference, drawn)) {
      Figures named = evaluation_names(row);
      named["sequence_kl"] = row.at("rb");
      named["reward"] = mean_of(rewards[rows.size()]);
      rows.push_back(std::move(named));
    }
    return rows;
  }
  if (holds_pairs(data.data)) {
    const PreferenceData pairs = load_preferences(data.data, reading, data);
    Progress progress("measure", 2 * std::ssize(pairs.pairs));
    rows =
        figures_on_pairs(of_policy, of_reference, pairs.pairs, [&](int64_t done, int64_t) { progress.update(done); });
    progress.finish();
    return rows;
  }
  for (const Figures& row : compare_models(of_policy, of_reference, responses_of(data, reading).examples).rows)
    rows.push_back(evaluation_names(row));
  return rows;
}

Frontier of_checkpoints(const std::vector<FrontierSource>& sources, FrontierOptions o, const DataOptions& data) {
  const std::string reference = reference_of(sources, o);
  const std::optional<Reward> judge = o.reward.empty() ? std::nullopt : std::optional(reward(o.reward));
  std::vector<EvaluatedPolicy> all;
  const auto figures = [&](const NamedModel& policy, const ModelPair& pair) {
    return bootstrap(measured(policy, pair.a, pair.tokenizing(), o, data, judge), static_cast<uint64_t>(o.seed));
  };
  std::map<std::string, Interval> before;
  for (const FrontierSource& source : sources) {
    const ModelPair pair = load_pair(reference, checkpoint_of(source));
    if (pair.recorded()) fail("{}: recorded rows answer no prompts and hold no other rows than their own", source.path);
    if (before.empty()) before = figures(pair.a, pair);
    all.push_back({.name = source.path, .after = figures(pair.b, pair), .before = before});
  }
  if (judge && o.divergence.empty()) o.divergence = "sequence_kl";
  if (judge) o.figure = "reward";
  Frontier frontier = of_figures(all, o);
  frontier.note = fmt::format("measured on {}, from {}, with 95 % intervals over rows", data.data, reference);
  if (judge) {
    frontier.y = {.title = "Mean reward " + judge->name(), .unit = judge->unit()};
    frontier.note = fmt::format("{} answers to each prompt of {}, from {}, with 95 % intervals over prompts", o.samples,
                                data.data, reference);
  }
  for (FrontierEntry& entry : frontier.entries) {
    if (entry.name == "before") entry.name = "reference";
  }
  return frontier;
}

void check(const FrontierOptions& o, const DataOptions& data, const std::vector<FrontierSource>& sources) {
  const auto worlds = std::ranges::count(sources, Kind::world, &FrontierSource::kind);
  if (worlds > 0 && worlds < std::ssize(sources))
    fail("exact worlds and real models have no reward in common; draw them apart");
  if (worlds > 0 && (!data.data.empty() || !o.reward.empty() || !o.figure.empty() || !o.divergence.empty()))
    fail("a world has its own reward and KL: --data, --reward, --figure and --divergence go with real models");
  if (!o.reward.empty() && data.data.empty()) fail("option --reward: whose prompts are answered? --data is missing");
  if (!o.reward.empty() && !o.figure.empty()) fail("option --figure: --reward is what was bought");
  if (!o.reference.empty() && data.data.empty()) fail("option --reference: goes with --data");
  for (const FrontierSource& one : sources) {
    if (one.kind == Kind::checkpoint && data.data.empty()) {
      fail("{}: {}; a checkpoint is measured with --data and --reference", one.path,
           fs::exists(one.path) ? "holds no evaluation.json" : "there is no such folder");
    }
    if (one.kind == Kind::comparison && !data.data.empty())
      fail("{}: a comparison is no checkpoint; name its models instead", one.path);
  }
}

Table table_of(const Frontier& frontier) {
  const std::vector<bool> front = pareto_front(frontier.entries, frontier.better);
  const bool share = frontier.y.unit.starts_with("share");
  Table table{
      .title = "",
      .columns = {text_column("policy"), number_column(frontier.x.title, significant(3), frontier.x.unit),
                  number_column(frontier.y.title, share ? percent(1) : significant(4), share ? "" : frontier.y.unit),
                  text_column("on the front")},
      .rows = {}};
  if (!frontier.most.empty()) table.columns.push_back(number_column("exact frontier there", significant(4)));
  for (size_t i = 0; i < frontier.entries.size(); ++i) {
    const FrontierEntry& entry = frontier.entries[i];
    table.rows.push_back(
        {Cell(entry.name), Cell(entry.divergence), Cell(entry.reward), front[i] ? Cell("yes", Tone::good) : Cell("")});
    if (!frontier.most.empty()) table.rows.back().emplace_back(frontier.most[i]);
  }
  std::ranges::stable_sort(table.rows, {}, [](const std::vector<Cell>& row) {
    const double value = std::get<Interval>(row[1].value).value;
    return std::isnan(value) ? INFINITY : value;
  });
  return table;
}

Json json_of(const Frontier& frontier, const Table& table) {
  Json json{{"divergence", frontier.divergence},
            {"reward", frontier.reward},
            {"better", frontier.better == Better::lower ? "lower" : "higher"},
            {"note", frontier.note},
            {"policies", table_json(table)}};
  if (!frontier.caution.empty()) json["caution"] = frontier.caution;
  for (const FrontierCurve& curve : frontier.curves)
    json["exact"].push_back({{"name", curve.name}, {"divergence", curve.divergence}, {"reward", curve.reward}});
  return json;
}

void write_folder(const std::string& output, const Frontier& frontier, const Table& table) {
  Plot plot = frontier_plot(frontier.entries, frontier.x, frontier.y, frontier.curves, true, frontier.better);
  plot.title = frontier.y.title + " against " + frontier.x.title;
  plot.note = frontier.note;
  Page page{.title = "Frontier",
            .summary = {fmt::format("{} policies: what each bought, and how far it moved for it", table.rows.size()),
                        frontier.note}};
  if (!frontier.caution.empty()) page.summary.push_back(frontier.caution);
  page.sections.push_back({"Reward against divergence", {Plots{{plot}}, table}});
  page.data = json_of(frontier, table);
  page.file_name = "frontier";
  NewFolder folder(output);
  write_file(folder.path() / "report.html", page_html(page));
  write_file(folder.path() / "frontier.svg", svg(plot));
  write_file(folder.path() / "frontier.csv", table_csv(table));
  write_file(folder.path() / "frontier.json", json_of(frontier, table).dump(1) + "\n");
  folder.commit();
}

int run(const std::vector<std::string>& given) {
  FrontierOptions options;
  DataOptions data;
  std::vector<std::string> arguments;
  if (!describe(options, data, arguments).parse(given)) return exit_success;
  if (!options.output.empty()) check_new_folder(options.output);
  std::vector<FrontierSource> sources;
  for (const std::string& argument : arguments) {
    const std::vector<FrontierSource> found = frontier_sources(argument);
    sources.insert(sources.end(), found.begin(), found.end());
  }
  check(options, data, sources);
  Frontier frontier;
  if (sources.front().kind == Kind::world) {
    frontier = of_worlds(sources);
  } else if (!data.data.empty()) {
    frontier = of_checkpoints(sources, options, data);
  } else {
    std::vector<EvaluatedPolicy> all;
    for (const FrontierSource& one : sources) all.push_back(read_evaluated(one));
    frontier = of_figures(all, options);
  }
  const Table table = table_of(frontier);
  if (!options.output.empty()) write_folder(options.output, frontier, table);
  if (options.json) {
    fmt::print("{}\n", json_of(frontier, table).dump(1));
  } else {
    fmt::print("{}", table_terminal(table, terminal_style(stdout)));
    if (!frontier.caution.empty()) fmt::print("{}\n", frontier.caution);
    if (!options.output.empty()) fmt::print("report   {}\n", (fs::path(options.output) / "report.html").string());
  }
  return exit_success;
}

const RegisteredProgram program{{"frontier", "what any runs and checkpoints bought, against how far they moved",
                                 [] {
                                   static FrontierOptions options;
                                   static DataOptions data;
                                   static std::vector<std::string> runs;
                                   return describe(options, data, runs);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
