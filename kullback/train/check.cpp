#include "kullback/train/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/base/suggest.h"
#include "kullback/io/jsonl.h"
#include "kullback/train/check_kinds.h"
#include "kullback/train/recipe.h"

namespace kullback {
namespace {

using at::Tensor;

std::map<std::pair<std::string, std::string>, CheckFunction>& registered() {
  static std::map<std::pair<std::string, std::string>, CheckFunction> all;
  return all;
}

double number(const Json& value, const std::string& where) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value == "inf") return unbounded;
  if (value == "-inf") return -unbounded;
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail("{}: {} is not a number", where, value.dump().substr(0, 40));
}

/// Whether it stands for numbers: infinities and NaN are written as strings.
bool is_numeric(const Json& value) {
  if (value.is_array())
    return value.empty() || std::ranges::all_of(value, [](const Json& v) { return !v.is_array() && is_numeric(v); });
  return !value.is_string() || std::set<std::string>{"inf", "-inf", "nan"}.contains(value.get<std::string>());
}

/// Lists of lists, of any lengths, one after another.
Json flattened(const Json& value) {
  if (!value.is_array()) return value;
  Json flat = Json::array();
  for (const Json& one : value) {
    const Json inner = flattened(one);
    if (!inner.is_array()) {
      flat.push_back(inner);
      continue;
    }
    for (const Json& number : inner) flat.push_back(number);
  }
  return flat;
}

/// A number, a list of numbers, or {"shape", "data"}.
Tensor to_tensor(const Json& json, const std::string& where) {
  Json data = json;
  std::vector<int64_t> shape;
  if (json.is_object()) {
    if (!json.contains("shape") || !json.contains("data")) fail("{}: a tensor needs shape and data", where);
    shape = json.at("shape").get<std::vector<int64_t>>();
    data = json.at("data");
  } else if (json.is_array()) {
    shape = {static_cast<int64_t>(json.size())};
  } else {
    data = Json::array({json});
  }
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  if (!data.is_array() || static_cast<int64_t>(data.size()) != count)
    fail("{}: {} numbers for a shape of {}", where, data.size(), count);
  bool integers = true;
  for (const Json& value : data) integers = integers && (value.is_number_integer() || value.is_boolean());
  if (integers && count > 0) {
    std::vector<int64_t> values;
    for (const Json& value : data) values.push_back(value.is_boolean() ? value.get<bool>() : value.get<int64_t>());
    return at::tensor(values, at::kLong).reshape(shape);
  }
  std::vector<double> values;
  for (const Json& value : data) values.push_back(number(value, where));
  return at::tensor(values, at::kDouble).reshape(shape);
}

/// The recipe's loss on a case's batch, as the trainer computes it; log-probabilities come as inputs or, through the
/// streaming head, from logits.
CheckOutputs preference_outputs(CheckCase& c, const Method& method) {
  const auto recipe = std::any_cast<PreferenceRecipe>(method.recipe);
  const std::shared_ptr<void> options = method.options->defaults();
  Json given = c.options();
  if (given.contains("reference_free")) {  // the fixtures' spelling, and older TRL's
    if (given["reference_free"].get<bool>()) given["reference"] = "none";
    given.erase("reference_free");
  }
  method.options->assign(options.get(), given, c.where());
  recipe.validate(options.get());
  const Needs needs = recipe.needs(options.get());

  const auto side = [&](const std::string& name) {
    Side s{.logps = {}, .reference_logps = {}, .mask = c.mask(name + "_mask"), .divergences = {}};
    for (const char* prefix : {"", "reference_"}) {
      if (std::ssize(s.uniforms) < needs.uniforms) s.uniforms.push_back(c.tensor(prefix + name + "_uniforms"));
    }
    if (!c.has("policy_" + name + "_logits")) {
      s.logps = c.tensor("policy_" + name + "_logps");
      if (needs.reference_logps) s.reference_logps = c.tensor("reference_" + name + "_logps");
      return s;
    }
    const Tensor policy = c.tensor("policy_" + name + "_logits");  // [B,T,V]
    const int64_t vocabulary = policy.size(-1);
    const Tensor labels = c.tensor(name + "_labels").reshape(-1);
    const auto rows = [&](const Tensor& logits) {
      return Rows{.hidden = logits.reshape({-1, vocabulary}), .weight = {}, .bias = {}};
    };
    HeadRequest request{.labels = labels, .logps = true, .scores = {}, .divergences = needs.divergences};
    const auto shaped = [&](const Tensor& statistic) { return statistic.reshape(s.mask.sizes()); };
    if (!needs.reference()) {
      s.logps = shaped(head_statistics(rows(policy), request).logps);
      return s;
    }
    const Rows reference = rows(c.tensor("reference_" + name + "_logits"));
    const bool two_rows = !needs.divergences.empty();
    const HeadStatistics ours =
        two_rows ? head_statistics(rows(policy), reference, request) : head_statistics(rows(policy), request);
    s.logps = shaped(ours.logps);
    for (const Tensor& d : ours.divergences) s.divergences.push_back(shaped(d));
    request.divergences.clear();
    s.reference_logps = shaped(head_statistics(reference, request).logps);
    return s;
  };
  PreferenceBatch batch{.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}};
  if (c.has("weight")) batch.weight = c.tensor("weight");
  return preference_outputs(recipe.loss(batch, options.get()));
}

CheckOutputs outputs_of(CheckCase& c, const Method& method) {
  for (const std::string& op : {c.op(), std::string()}) {
    const auto found = registered().find({method.name, op});
    if (found != registered().end()) return found->second(c);
  }
  if (method.recipe.type() == typeid(PreferenceRecipe)) return preference_outputs(c, method);
  fail("{}: method {} has no check for the operation \"{}\"", c.where(), method.name, c.op());
}

CheckReport check_method(const Json& fixture, const std::string& file) {
  const Method& method = find_method(fixture.at("method").get<std::string>());
  if (!fixture.contains("cases") || !fixture["cases"].is_array()) fail("{}: no list of cases", file);
  CheckReport report{.file = file, .kind = method.name, .results = {}};
  for (const Json& one : fixture["cases"]) {
    CheckCase check_case(one, file);
    report.results.push_back(compare(check_case, outputs_of(check_case, method)));
  }
  return report;
}

}  // namespace

CheckCase::CheckCase(Json json, std::string where) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string())
    fail("{}: a case without a name", where);
  name_ = json["name"].get<std::string>();
  where_ = where + ": case \"" + name_ + "\"";
  const auto object = [&](const char* key) {
    if (!json.contains(key)) return Json(Json::object());
    if (!json[key].is_object()) fail("{}: \"{}\" is not an object", where_, key);
    return json[key];
  };
  options_ = object("options"), inputs_ = object("inputs"), expected_ = object("expected");
  if (json.contains("op") && json["op"].is_string()) op_ = json["op"].get<std::string>();
  for (const char* key : {"what", "op"}) {  // where some fixtures name it
    if (options_.contains(key) && options_[key].is_string())
      op_ = options_[key].get<std::string>(), options_.erase(key);
  }
  if (!json.contains("tolerance") || !json["tolerance"].is_number()) fail("{}: no tolerance", where_);
  tolerance_ = json["tolerance"].get<double>();
}

const Json& CheckCase::input(const std::string& name) const {
  if (!inputs_.contains(name)) fail("{}: no input \"{}\"", where_, name);
  return inputs_.at(name);
}

Tensor CheckCase::tensor(const std::string& name) {
  const auto known = tensors_.find(name);
  if (known != tensors_.end()) return known->second;
  Tensor tensor = to_tensor(input(name), where_ + ": input " + name);
  if (expected_.contains("grad_" + name)) tensor = tensor.to(at::kDouble).requires_grad_(true);
  return tensors_[name] = tensor;
}

Tensor CheckCase::mask(const std::string& name) { return tensor(name).to(at::kBool); }

RegisteredCheck::RegisteredCheck(const std::string& method, const std::string& op, CheckFunction function) {
  registered()[{method, op}] = std::move(function);
}

bool CheckReport::passed() const {
  for (const CheckResult& result : results) {
    if (!result.passed) return false;
  }
  return true;
}

CheckOutputs preference_outputs(const PreferenceLoss& loss) {
  const Tensor margin = loss.chosen_rewards - loss.rejected_rewards, accuracy = (margin > 0).to(at::kDouble).mean();
  CheckOutputs outputs = loss.parts;
  outputs.insert({{"loss", loss.value},
                  {"losses", loss.losses},
                  {"chosen_rewards", loss.chosen_rewards},
                  {"rejected_rewards", loss.rejected_rewards},
                  {"reward_margin", margin.mean()},
                  {"reward_accuracy", accuracy},
                  {"accuracy", accuracy}});
  return outputs;
}

CheckResult compare(CheckCase& c, CheckOutputs outputs) {
  CheckResult result{.name = c.name(), .passed = true, .tolerance = c.tolerance(), .at = ""};
  for (const auto& [key, written] : c.expected().items()) {
    const bool of_numbers = outputs.contains(key) && is_numeric(flattened(written));
    const Json value = of_numbers ? flattened(written) : written;
    if (key.starts_with("grad_") && !outputs.contains(key)) {
      if (!outputs.contains("loss")) fail("{}: a gradient is expected, but there is no output \"loss\"", c.where());
      const Tensor input = c.tensor(key.substr(5));
      const auto gradients =
          torch::autograd::grad({outputs["loss"]}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/false,
                                /*allow_unused=*/true);
      outputs[key] = gradients[0].defined() ? gradients[0] : at::zeros_like(input);
    }
    if (!is_numeric(value)) {  // a name that was chosen, or a list
      const std::string named = key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
      if (outputs.contains(named)) continue;
      result.passed = false, result.largest_difference = unbounded, result.at = "no output " + named;
      return result;
    }
    const auto ours = outputs.find(key);
    if (ours == outputs.end()) {
      result.passed = false, result.largest_difference = unbounded, result.at = "no output \"" + key + "\"";
      return result;
    }
    const Tensor expected = to_tensor(value, c.where() + ": expected " + key).to(at::kDouble);
    const Tensor actual = ours->second.detach().to(at::kDouble);
    if (actual.sizes() != expected.sizes() && !(expected.dim() == 0 && actual.numel() == 1)) {
      result.passed = false, result.largest_difference = unbounded;
      result.at = fmt::format("{} has shape {}, expected {}", key, fmt::join(actual.sizes(), "x"),
                              fmt::join(expected.sizes(), "x"));
      return result;
    }
    const Tensor a = actual.reshape(-1).contiguous(), e = expected.reshape(-1).contiguous();
    for (int64_t i = 0; i < e.numel(); ++i) {
      const double x = a.const_data_ptr<double>()[i], y = e.const_data_ptr<double>()[i];
      const bool same = x == y || (std::isnan(x) && std::isnan(y));
      double difference = same ? 0 : std::fabs(x - y) / std::max(1.0, std::fabs(y));
      if (std::isnan(difference)) difference = unbounded;
      if (difference > result.largest_difference || result.at.empty()) {
        result.largest_difference = std::max(difference, result.largest_difference);
        result.at = e.numel() > 1 ? fmt::format("{}[{}]", key, i) : key;
      }
    }
  }
  result.passed = result.largest_difference <= result.tolerance;
  return result;
}

CheckReport check_file(const std::filesystem::path& file, const std::string& model) {
  const Json fixture = read_json(file);
  if (!fixture.is_object()) fail("{}: not a JSON object", file.string());
  try {
    if (fixture.contains("method") && fixture.contains("cases") && !fixture.contains("kind"))
      return check_method(fixture, file.string());
    const std::string kind =
        fixture.contains("kind") && fixture["kind"].is_string() ? fixture["kind"].get<std::string>() : "";
    if (kind == "tokenizer") return check_tokenizer(fixture, file, model);
    if (kind == "lm") return check_language_model(fixture, file, model);
    if (kind == "training-trace") return check_training_trace(fixture, file, model);
    if (kind == "architecture") return check_architecture(fixture, file, model);
    const std::vector<std::string> kinds{"tokenizer", "lm", "training-trace", "architecture"};
    fail("{}: unknown kind of fixture \"{}\"{}; it needs a \"method\" or a \"kind\" among {}", file.string(), kind,
         suggestion(kind, kinds), listing(kinds));
  } catch (const Json::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

}  // namespace kullback
