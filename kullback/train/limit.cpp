#include "kullback/train/limit.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"

namespace kullback {

Limit parse_limit(const std::string& text) {
  const std::string compact = without_spaces(text);
  const size_t bound = compact.find("<="), weight = compact.find('*');
  const size_t end = std::min(bound, weight);
  if (end == std::string::npos) {
    fail("option --limit: \"{}\" is neither a bound such as \"kl<=0.05\" nor a weight such as \"kl*0.1\"", text);
  }
  Limit limit{.divergence = {divergence("kl")}};
  limit.fixed = end == weight;
  limit.name = compact.substr(0, end);
  std::string divergence_name = limit.name;
  if (const size_t slash = divergence_name.find('/'); slash != std::string::npos) {
    const std::string per = divergence_name.substr(slash + 1);
    if (per != "token" && per != "sequence") {
      fail("option --limit: \"{}\": /{} is neither /token nor /sequence", text, per);
    }
    limit.per_sequence = per == "sequence";
    divergence_name.resize(slash);
    if (!limit.per_sequence) limit.name = divergence_name;
  }
  limit.divergence = divergence(divergence_name).from_policy();
  const std::string number = compact.substr(end + (limit.fixed ? 1 : 2));
  limit.bound = parsed_number(number).value_or(0);
  if (!(limit.bound > 0) || !std::isfinite(limit.bound)) {
    fail("option --limit: \"{}\": \"{}\" is no number above 0", text, number);
  }
  return limit;
}

const Options<LimitOptions>& limit_options() {
  using O = LimitOptions;
  static const auto options =
      Options<O>()
          .option("limit", &O::limit,
                  "keep the policy within this distance of the reference: \"kl<=0.05\" in nats a token, "
                  "\"kl/sequence<=3\" a response, any divergence, several separated by commas; \"kl*0.1\" adds a term "
                  "of fixed weight instead")
          .option("limit-rate", &O::dual_rate, positive, "how fast a limit's multiplier follows its violation")
          .option("limit-damping", &O::damping, non_negative,
                  "how strongly it answers the last steps' violation at once");
  return options;
}

Limits::Limits(const LimitOptions& options) : rate_(options.dual_rate), damping_(options.damping) {
  for (const std::string& text : options.limit) limits_.push_back(parse_limit(text));
  duals_.resize(limits_.size());
}

std::vector<RowDivergence> Limits::divergences() const {
  std::vector<RowDivergence> all;
  for (const Limit& limit : limits_) all.push_back(limit.divergence);
  return all;
}

double Limits::multiplier(size_t i) const {
  const Dual& dual = duals_[i];
  return dual.steps == 0 ? 0 : std::exp(dual.level + damping_ * dual.violation);
}

std::vector<double> Limits::weights(double tokens, double sequences) const {
  std::vector<double> all;
  for (size_t i = 0; i < limits_.size(); ++i) {
    const Limit& limit = limits_[i];
    const double count = std::max(1.0, limit.per_sequence ? sequences : tokens);
    all.push_back((limit.fixed ? limit.bound : multiplier(i) / limit.bound) / count);
  }
  return all;
}

void Limits::after_step(Figures& figures) {
  constexpr double memory = 0.5;  // of the running mean
  constexpr double most = 2;      // a violation counts at most so much, either way
  constexpr double least = 1e-4;  // a multiplier so small does nothing; further down it would be slow to come back
  constexpr double near = -0.3;   // from here on a limit is taken to bind
  for (size_t i = 0; i < limits_.size(); ++i) {
    const Limit& limit = limits_[i];
    const auto measured = figures.find("limit/" + limit.name);
    if (measured == figures.end() || limit.fixed) continue;
    Dual& dual = duals_[i];
    const double value = measured->second.value();
    dual.measured = dual.steps == 0 ? value : memory * dual.measured + (1 - memory) * value;
    ++dual.steps;
    dual.violation = std::clamp(std::log(std::max(dual.measured * dual.ratio, 1e-300) / limit.bound), -most, most);
    dual.bound = dual.bound || dual.violation > near;
    if (dual.violation > 0 || dual.level > std::log(least)) dual.level += rate_ * dual.violation;
    figures["limit/" + limit.name + " bound"] = {limit.bound, 1};
    figures["multiplier/" + limit.name] = {multiplier(i), 1};
  }
}

void Limits::observe_held_out(const Figures& figures) {
  for (size_t i = 0; i < limits_.size(); ++i) {
    Dual& dual = duals_[i];
    dual.held_out = figures.at("limit/" + limits_[i].name).value();
    // Far from the bound the ratio of two small numbers says nothing.
    if (dual.steps == 0 || dual.measured < 0.2 * limits_[i].bound) continue;
    dual.ratio = std::clamp(dual.held_out / dual.measured, 0.5, 2.0);
  }
}

double Limits::settling_factor() const {
  double factor = INFINITY;
  for (size_t i = 0; i < limits_.size(); ++i) {
    if (limits_[i].fixed || !(duals_[i].held_out > 0)) continue;
    const double room = limits_[i].bound / duals_[i].held_out;
    if (room >= 1 && !duals_[i].bound) continue;
    factor = std::min(factor, std::sqrt(room));  // near the reference a divergence goes with the square of the distance
  }
  return std::isinf(factor) || std::abs(factor - 1) < 0.01 ? 1 : factor;
}

Json Limits::state() const {
  Json state = Json::array();
  for (const Dual& dual : duals_)
    state.push_back({dual.level, dual.violation, dual.measured, dual.ratio, dual.steps, dual.held_out, dual.bound});
  return state;
}

void Limits::restore(const Json& state) {
  for (size_t i = 0; i < duals_.size() && i < state.size(); ++i) {
    const Json& s = state[i];
    duals_[i] = {s[0].get<double>(),  s[1].get<double>(), s[2].get<double>(), s[3].get<double>(),
                 s[4].get<int64_t>(), s[5].get<double>(), s[6].get<bool>()};
  }
}

void add_limit_figures(const Limits& limits, const std::vector<at::Tensor>& divergences, double sequences,
                       Figures& figures) {
  for (size_t i = 0; i < limits.list().size(); ++i) {
    const Limit& limit = limits.list()[i];
    const double sum = divergences[i].sum().item<double>();
    add(figures,
        {{"limit/" + limit.name, {sum, limit.per_sequence ? sequences : static_cast<double>(divergences[i].numel())}}});
  }
}

}  // namespace kullback
