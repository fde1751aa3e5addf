#include "kullback/measure/laws.h"

#include <algorithm>
#include <limits>
#include <map>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"
#include "kullback/divergence/between_vectors.h"
#include "kullback/divergence/dirichlet.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"

namespace kullback {
namespace {

double number_of(const Json& json, const std::string& where) {
  if (json.is_number()) return json.get<double>();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  fail("{}: {} is not a number", where, json.dump().substr(0, 40));
}

std::vector<double> numbers_of(const Json& json, const std::string& where) {
  if (json.is_number()) return {json.get<double>()};
  if (!json.is_array() || json.empty())
    fail("{}: a list of numbers is needed, not {}", where, json.dump().substr(0, 40));
  std::vector<double> out;
  for (size_t i = 0; i < json.size(); ++i) out.push_back(number_of(json[i], fmt::format("{}[{}]", where, i)));
  return out;
}

at::Tensor matrix_of(const Json& json, const std::string& where) {
  std::vector<double> all;
  for (const Json& row : json) {
    const std::vector<double> numbers = numbers_of(row, where);
    if (numbers.size() != json.size())
      fail("{}: a row has {} entries and the matrix {} rows", where, numbers.size(), json.size());
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  const auto size = static_cast<int64_t>(json.size());
  return at::tensor(all, at::kDouble).view({size, size});
}

Law law_of(const Json& json, const std::string& where) {
  if (!json.is_object()) return Outcomes{{}, numbers_of(json, where)};
  if (json.contains("mean")) {
    Gaussian g{at::tensor(numbers_of(json["mean"], where + ": mean"), at::kDouble), {}};
    if (json.contains("covariance") == json.contains("variance"))
      fail("{}: a Gaussian needs either \"covariance\" or \"variance\"", where);
    const char* key = json.contains("covariance") ? "covariance" : "variance";
    const std::string place = where + ": " + key;
    const bool full = json[key].is_array() && !json[key].empty() && json[key][0].is_array();
    g.covariance = full ? matrix_of(json[key], place) : at::tensor(numbers_of(json[key], place), at::kDouble);
    return g;
  }
  if (json.contains("concentration")) return Dirichlet{numbers_of(json["concentration"], where + ": concentration")};
  Outcomes outcomes;
  for (const auto& [name, value] : json.items()) {
    outcomes.names.push_back(name);
    outcomes.numbers.push_back(number_of(value, where + ": " + name));
  }
  if (outcomes.names.empty()) fail("{}: no outcomes", where);
  return outcomes;
}

std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

std::optional<double> parsed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return parsed_number(text);
}

/// The columns of a CSV file: `laws` columns of numbers, perhaps after one of names.
std::vector<Outcomes> read_csv(const std::string& path, size_t laws) {
  const std::string text = read_text(path);
  std::vector<Outcomes> out(laws);
  size_t line = 0, columns = 0;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    const std::vector<std::string> fields = fields_of(std::string_view(text).substr(from, to - from));
    from = to + 1;
    ++line;
    if (fields.size() == 1 && fields[0].empty()) continue;
    if (line == 1 && !parsed(fields.back())) continue;  // a heading
    if (columns == 0) columns = fields.size();
    if (fields.size() != columns)
      fail("{}: line {}: {} fields, and those before have {}", path, line, fields.size(), columns);
    if (columns != laws && columns != laws + 1)
      fail("{}: line {}: {} fields, where {} numbers, perhaps after a name, are needed", path, line, columns, laws);
    for (size_t i = 0; i < laws; ++i) {
      const std::string& field = fields[columns - laws + i];
      const std::optional<double> x = parsed(field);
      if (!x) fail("{}: line {}: \"{}\" is not a number", path, line, field);
      out[i].numbers.push_back(*x);
      if (columns > laws) out[i].names.push_back(fields[0]);
    }
  }
  if (out[0].numbers.empty()) fail("{}: no outcomes", path);
  return out;
}

bool is_csv(const std::string& path) { return path.ends_with(".csv") || path.ends_with(".CSV"); }

/// Puts named outcomes in one order, `absent` where a law lacks one.
void match(Outcomes& p, Outcomes& q, double absent) {
  if (p.names.empty() != q.names.empty()) fail("one law's outcomes have names and the other's have none");
  if (p.names.empty()) return;
  std::map<std::string, std::pair<double, double>> all;
  for (const std::string& name : p.names) all[name] = {absent, absent};
  for (const std::string& name : q.names) all[name] = {absent, absent};
  const auto fill = [&](const Outcomes& law, double std::pair<double, double>::*side) {
    std::map<std::string, int> seen;
    for (size_t i = 0; i < law.names.size(); ++i) {
      if (seen[law.names[i]]++) fail("outcome \"{}\" stands twice in one law", law.names[i]);
      all[law.names[i]].*side = law.numbers[i];
    }
  };
  fill(p, &std::pair<double, double>::first);
  fill(q, &std::pair<double, double>::second);
  p = q = {};
  for (const auto& [name, both] : all) {
    p.names.push_back(name);
    q.names.push_back(name);
    p.numbers.push_back(both.first);
    q.numbers.push_back(both.second);
  }
}

double one(const Divergence& d, const PairOfLaws& laws, NumbersAs as, double smoothing) {
  if (const auto* p = std::get_if<Gaussian>(&laws.p)) return between_gaussians(d, *p, std::get<Gaussian>(laws.q));
  if (const auto* p = std::get_if<Dirichlet>(&laws.p)) {
    return between_dirichlets(d, p->concentration, std::get<Dirichlet>(laws.q).concentration);
  }
  const auto &p = std::get<Outcomes>(laws.p).numbers, &q = std::get<Outcomes>(laws.q).numbers;
  if (as == NumbersAs::counts) return between_counts(d, p, q, smoothing);
  return as == NumbersAs::logits ? between_logits(d, p, q) : between(d, p, q);
}

/// Whether `all` includes it: closed forms of Gaussians and Dirichlets are fewer.
bool has_closed_form(const std::string& name, const PairOfLaws& laws) {
  try {
    one(divergence(name), laws, NumbersAs::probabilities, 0);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

PairOfLaws read_laws(const std::vector<std::string>& files, NumbersAs as) {
  if (files.empty() || files.size() > 2) fail("one file with both laws, or two files, are needed");
  PairOfLaws laws;
  if (files.size() == 1) {
    if (is_csv(files[0])) {
      std::vector<Outcomes> columns = read_csv(files[0], 2);
      laws = {std::move(columns[0]), std::move(columns[1])};
    } else {
      const Json json = read_json(files[0]);
      if (!json.is_object() || !json.contains("p") || !json.contains("q"))
        fail("{}: one file must hold both laws as \"p\" and \"q\"", files[0]);
      laws = {law_of(json["p"], files[0] + ": p"), law_of(json["q"], files[0] + ": q")};
    }
  } else {
    const auto read = [](const std::string& path) -> Law {
      if (is_csv(path)) return read_csv(path, 1)[0];
      return law_of(read_json(path), path);
    };
    laws = {read(files[0]), read(files[1])};
  }
  if (laws.p.index() != laws.q.index()) fail("the two laws are of different kinds");
  if (auto* p = std::get_if<Outcomes>(&laws.p)) {
    match(*p, std::get<Outcomes>(laws.q), as == NumbersAs::logits ? -std::numeric_limits<double>::infinity() : 0);
  }
  return laws;
}

std::vector<Measured> measure(const PairOfLaws& laws, const std::vector<std::string>& names, NumbersAs as,
                              double smoothing) {
  const bool of_outcomes = std::holds_alternative<Outcomes>(laws.p);
  if (smoothing != 0 && (!of_outcomes || as != NumbersAs::counts)) fail("option --smoothing belongs to counts");
  std::vector<Measured> out;
  const auto add = [&](const std::string& name) {
    const Divergence d = divergence(name);
    out.push_back({d.name(), d.description(), one(d, laws, as, smoothing)});
  };
  const auto add_wasserstein_2 = [&] {
    out.push_back({"wasserstein-2", "the root of the least mean squared distance of a coupling",
                   wasserstein_2(std::get<Gaussian>(laws.p), std::get<Gaussian>(laws.q))});
  };
  const bool gaussians = std::holds_alternative<Gaussian>(laws.p);
  for (const std::string& name : names) {
    if (name == "wasserstein-2" && gaussians) {
      add_wasserstein_2();
    } else if (name != "all") {
      add(name);
    } else {
      one(divergence("kl"), laws, as, smoothing);  // there is always one: what is wrong with the laws is said here
      for (const DivergenceInfo& info : known_divergences()) {
        if (of_outcomes || has_closed_form(info.name, laws)) add(info.name);
      }
      if (gaussians) add_wasserstein_2();
    }
  }
  return out;
}

}  // namespace kullback
