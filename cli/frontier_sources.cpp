#include "cli/frontier_sources.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "kullback/base/command.h"
#include "kullback/base/error.h"
#include "kullback/io/jsonl.h"

namespace kullback {
namespace fs = std::filesystem;

namespace {

double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return INFINITY;
  return value == "-inf" ? -INFINITY : NAN;
}

/// The file of a world in a folder, or the file itself.
fs::path world_file(const std::string& path) {
  return fs::is_directory(path) ? fs::path(path) / "world.json" : fs::path(path);
}

bool is_world(const std::string& path) {
  const fs::path file = world_file(path);
  if (file.extension() != ".json" || !fs::is_regular_file(file)) return false;
  const Json json = read_json(file);
  return json.contains("world") && json.contains("frontier") && json.contains("standings");
}

std::map<std::string, Interval> of_evaluation(const Json& figures) {
  std::map<std::string, Interval> read;
  for (const auto& [name, v] : figures.items()) read[name] = {number(v[0]), number(v[1]), number(v[2])};
  return read;
}

/// B's figures under the names of an evaluation: how far B, the policy, is from A.
EvaluatedPolicy of_comparison(const std::string& path) {
  const Json json = read_json(fs::path(path) / "comparison.json");
  EvaluatedPolicy policy{.name = path, .after = {}, .before = {{"kl", {0, 0, 0}}, {"reverse_kl", {0, 0, 0}}}};
  const auto interval = [](const Json& v) {
    return Interval{number(v.at("value")), number(v.at("low")), number(v.at("high"))};
  };
  const Json& figures = json.at("figures");
  for (const auto& [theirs, ours] : {std::pair{"kl", "reverse_kl"},
                                     {"reverse-kl", "kl"},
                                     {"js", "js"},
                                     {"tv", "tv"},
                                     {"hellinger", "hellinger"},
                                     {"agreement", "agreement"},
                                     {"loss_b", "loss"}})
    policy.after[ours] = interval(figures.at(theirs));
  for (const char* symmetric : {"js", "tv", "hellinger"}) policy.before[symmetric] = {0, 0, 0};
  policy.before["loss"] = interval(figures.at("loss_a"));
  policy.before["agreement"] = {1, 1, 1};
  const Json samples = json.value("samples", Json::object());
  const auto sampled = [&](const char* side, const char* figure) {
    return samples.contains(side) && samples[side].contains(figure) ? interval(samples[side][figure]) : Interval{};
  };
  if (samples.contains("b")) policy.after["sequence_kl"] = sampled("b", "rb");
  if (samples.contains("b") && samples["b"].contains("reward")) policy.after["reward"] = sampled("b", "reward");
  if (samples.contains("a") && samples["a"].contains("reward")) policy.before["reward"] = sampled("a", "reward");
  policy.before["sequence_kl"] = {0, 0, 0};
  return policy;
}

}  // namespace

std::vector<FrontierSource> frontier_sources(const std::string& argument) {
  using Kind = FrontierSource::Kind;
  const fs::path path = argument;
  if (is_world(argument)) return {{Kind::world, argument}};
  if (fs::exists(path / "evaluation.json")) return {{Kind::run, argument}};
  if (fs::exists(path / "comparison.json") && read_json(path / "comparison.json").is_object())
    return {{Kind::comparison, argument}};
  std::vector<FrontierSource> all;
  if (fs::is_directory(path)) {  // of --method a,b,c or of `kullback run`
    std::set<std::string> folders;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (fs::exists(entry.path() / "evaluation.json")) folders.insert(entry.path().string());
    }
    for (const std::string& folder : folders) all.push_back({Kind::run, folder});
  }
  if (!all.empty()) return all;
  if (fs::exists(path / "config.toml") && fs::exists(path / "metrics.jsonl"))
    fail("{}: the run in it is not complete (no evaluation.json)", argument);
  return {{Kind::checkpoint, argument}};
}

EvaluatedPolicy read_evaluated(const FrontierSource& source) {
  if (source.kind == FrontierSource::Kind::comparison) return of_comparison(source.path);
  const Json json = read_json(fs::path(source.path) / "evaluation.json");
  if (!json.contains("after")) fail("{}/evaluation.json: no figures \"after\" training", source.path);
  return {.name = source.path,
          .after = of_evaluation(json["after"]),
          .before = of_evaluation(json.value("before", Json::object()))};
}

ExactWorld read_world(const std::string& path) {
  const Json json = read_json(world_file(path));
  ExactWorld world{.options = json.at("world"),
                   .entries = {},
                   .most = {},
                   .frontier = {.name = "exact frontier", .divergence = {}, .reward = {}}};
  for (const Json& point : json.at("frontier")) {
    world.frontier.divergence.push_back(number(point.at("KL")));
    world.frontier.reward.push_back(number(point.at("reward")));
  }
  for (const Json& one : json.at("standings")) {
    world.entries.push_back({.name = one.at("policy").get<std::string>(),
                             .divergence = {.value = number(one.at("KL"))},
                             .reward = {.value = number(one.at("reward"))}});
    world.most.push_back(number(one.at("most at this KL")));
  }
  return world;
}

std::string checkpoint_of(const FrontierSource& source) {
  if (source.kind == FrontierSource::Kind::checkpoint) return source.path;
  for (const char* name : {"adapter", "model"}) {
    const fs::path trained = fs::path(source.path) / name;
    if (source.kind == FrontierSource::Kind::run && fs::exists(trained)) return trained.string();
  }
  fail("{}: holds no checkpoint that could be measured", source.path);
}

std::string beginning_of(const FrontierSource& source) {
  const fs::path config = fs::path(source.path) / "config.toml";
  if (source.kind != FrontierSource::Kind::run || !fs::exists(config)) return "";
  const Json run = read_toml(config.string()).value("run", Json::object());
  return run.value("model", run.value("student", std::string()));
}

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::string> whole;  // "/runs/first" of "runs/first/"
  for (const std::string& path : paths) {
    fs::path one = path;
    if (!one.has_filename()) one = one.parent_path();
    whole.push_back(fmt::format("/{}", one.relative_path().string()));
  }
  std::vector<std::string> names;
  for (const std::string& path : whole) {
    size_t slash = path.rfind('/');
    const auto is_taken = [&] {
      const std::string ending = path.substr(slash);
      return std::ranges::count_if(whole, [&](const std::string& other) { return other.ends_with(ending); }) > 1;
    };
    while (slash > 0 && is_taken()) slash = path.rfind('/', slash - 1);
    names.push_back(path.substr(slash + 1));
  }
  return names;
}

}  // namespace kullback
