#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/report/frontier.h"
#include "kullback/report/plot.h"
#include "kullback/report/progress.h"
#include "kullback/report/table.h"
#include "kullback/world/explore.h"

namespace kullback {
namespace {

struct ShowOptions {
  std::string method;
  double optimum_beta = 1;
  int64_t show = 12, frontier = 24;
  std::vector<std::string> divergence{"kl", "reverse-kl", "js", "tv", "chi2", "hellinger"};
  std::string plot, output;
  bool json = false;
};

const Options<ShowOptions>& show_options() {
  static const auto options =
      Options<ShowOptions>()
          .option("method", &ShowOptions::method,
                  "train by this preference method and see where it lands; its options follow below")
          .option("optimum-beta", &ShowOptions::optimum_beta, positive,
                  "strength of the KL penalty of the optimum that is shown")
          .option("show", &ShowOptions::show, non_negative, "responses shown of the likeliest prompt, the best first")
          .option("frontier", &ShowOptions::frontier, at_least(2), "points of the exact frontier")
          .option("distances", &ShowOptions::divergence,
                  "measured between each policy and the reference, on responses and summed over tokens")
          .option("plot", &ShowOptions::plot, "write the reward-KL plot to this SVG file")
          .option("output", &ShowOptions::output,
                  "write world.json, which `kullback frontier` reads, and frontier.svg into this new folder")
          .option("json", &ShowOptions::json, "one JSON object instead of tables");
  return options;
}

struct WorldJob {
  ShowOptions show;
  WorldOptions world;
  WorldTraining training;
  const Method* method = nullptr;
  std::shared_ptr<void> method_options;
};

Command describe(WorldJob& job) {
  Command command("world",
                  "explore a world that can be enumerated: its optimum, its frontier, and where a method lands",
                  "A vocabulary of at most 8 tokens and responses of at most 6: every probability, reward and "
                  "divergence is exact. The\n"
                  "frontier is the most reward that any policy has at a KL from the reference; a method's policy is "
                  "shown against it.\n"
                  "Rewards are sums such as \"random + 0.5*length - 2*ends:11\" of random, length, count:TOKEN, "
                  "ends:TOKENS, towards.");
  command.options("What to show", show_options(), &job.show).options("World", world_options(), &job.world);
  if (job.method != nullptr) {
    command.options("Method " + job.method->name, *job.method->options, job.method_options.get());
    command.options("Training", world_training_options(), &job.training);
  }
  command.example("kullback world")
      .example("kullback world --vocabulary 4 --length 4 --reward \"count:1 + random\" --plot frontier.svg")
      .example("kullback world --method dpo --beta 0.5 --pairs 200 --label-noise 0.1 --output worlds/dpo")
      .example("kullback world --policy transformer --method dpo --reward random --proxy \"random + length\"");
  return command;
}

Table table_of_responses(const WorldView& view) {
  Table table{.title = fmt::format("Best responses to prompt {} (probability {})", view.prompt,
                                   number_text(view.prompt_probability)),
              .columns = {text_column("response"), number_column("reward"), number_column("reference")}};
  for (const std::string& policy : view.policy_names) table.columns.push_back(number_column(policy));
  for (const ResponseView& r : view.responses) {
    std::vector<Cell> row{r.text, r.reward, r.reference};
    for (const double p : r.policies) row.push_back(p);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table table_of_standings(const WorldView& view) {
  Table table{.title = "Where policies stand",
              .columns = {text_column("policy"), number_column("reward"), number_column("most at this KL"),
                          number_column("KL", {}, "nats"), number_column("KL reversed", {}, "nats"),
                          number_column("entropy", {}, "nats"), number_column("tokens")}};
  if (view.has_proxy) table.columns.insert(table.columns.begin() + 2, number_column("proxy"));
  for (const auto& [name, s] : view.standings) {
    std::vector<Cell> row{name, s.reward, s.frontier_reward, s.kl, s.reverse_kl, s.entropy, s.length};
    if (view.has_proxy) row.insert(row.begin() + 2, s.proxy);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table table_of_divergences(const WorldView& view) {
  Table table{.title = "D(policy || reference), responses / summed over tokens", .columns = {text_column("policy")}};
  for (const std::string& name : view.divergence_names) table.columns.push_back(number_column(name));
  for (const auto& [name, numbers] : view.divergences) {
    std::vector<Cell> row{name};
    for (const auto& [responses, tokens] : numbers)
      row.push_back(fmt::format("{} / {}", number_text(responses), number_text(tokens)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table table_of_frontier(const WorldView& view) {
  Table table{.title = "Exact frontier",
              .columns = {number_column("beta"), number_column("KL", {}, "nats"), number_column("reward")}};
  for (const FrontierPoint& point : view.frontier) table.rows.push_back({point.beta, point.kl, point.reward});
  return table;
}

Plot plot_of(const WorldView& view) {
  FrontierCurve curve{.name = "exact frontier", .divergence = {}, .reward = {}};
  for (const FrontierPoint& point : view.frontier)
    curve.divergence.push_back(point.kl), curve.reward.push_back(point.reward);
  std::vector<FrontierEntry> entries;
  for (const auto& [name, s] : view.standings)
    entries.push_back({.name = name, .divergence = {.value = s.kl}, .reward = {.value = s.reward}});
  Plot plot = frontier_plot(entries, {.title = "KL(policy || reference)", .unit = "nats/response", .minimum = 0},
                            {.title = "expected reward"}, {curve});
  plot.title = "Reward against KL";
  plot.note = view.description;
  return plot;
}

Json json_of(const WorldJob& job, const WorldView& view) {
  return {{"world", world_options().values(&job.world)},       {"description", view.description},
          {"responses", table_json(table_of_responses(view))}, {"frontier", table_json(table_of_frontier(view))},
          {"standings", table_json(table_of_standings(view))}, {"divergences", table_json(table_of_divergences(view))}};
}

void write_folder(const WorldJob& job, const WorldView& view) {
  NewFolder folder(job.show.output);
  write_file(folder.path() / "world.json", json_of(job, view).dump(1) + "\n");
  write_file(folder.path() / "frontier.svg", svg(plot_of(view)));
  folder.commit();
}

int run(const std::vector<std::string>& arguments) {
  WorldJob job;
  if (const auto method = Command::peek(arguments, "method")) {
    job.method = &find_method(*method, Family::alignment);
    job.method_options = job.method->options->defaults();
  }
  if (!describe(job).parse(arguments)) return exit_success;
  if (!job.show.output.empty()) check_new_folder(job.show.output);
  const World world = make_world(job.world);
  ViewRequest request{.optimum_beta = job.show.optimum_beta,
                      .responses = job.show.show,
                      .frontier = job.show.frontier,
                      .divergences = job.show.divergence};
  if (job.method != nullptr) {
    const WorldPairs pairs = pairs_for(world, job.training);
    Progress progress("train", job.training.steps);
    const at::Tensor rows = train_in_world(world, *job.method, job.method_options.get(), pairs, job.training,
                                           [&](int64_t step, double loss) {
                                             progress.update(step, {{"loss", loss}});
                                           });
    request.policies.emplace_back(job.method->name, rows);
  }
  const WorldView view = look_at(world, request);
  if (!job.show.plot.empty()) write_file(job.show.plot, svg(plot_of(view)));
  if (!job.show.output.empty()) write_folder(job, view);
  if (job.show.json) {
    fmt::print("{}\n", json_of(job, view).dump());
    return exit_success;
  }
  fmt::print("{}\n\n", view.description);
  for (const Table& table :
       {table_of_responses(view), table_of_frontier(view), table_of_standings(view), table_of_divergences(view)}) {
    if (!table.rows.empty()) fmt::print("{}\n", table_terminal(table, terminal_style(stdout)));
  }
  return exit_success;
}

const RegisteredProgram program{{"world", "explore a world where everything is exact, and run methods in it",
                                 [] {
                                   static WorldJob job;
                                   return describe(job);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
