#include "kullback/divergence/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"
#include "kullback/base/suggest.h"
#include "kullback/divergence/definition.h"

namespace kullback {
namespace {

using detail::Definition;
using detail::KnownGenerator;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Definition from_generator(KnownGenerator known, const std::string& what) {
  Definition definition;
  definition.description = what + ", f(u) = " + known.formula;
  definition.plain = detail::plain_generator(known.generator);
  definition.generator = std::move(known.generator);
  definition.from_reference = known.from_reference;
  definition.from_policy = known.from_policy;
  return definition;
}

Definition from_plain(detail::PlainRow plain, const std::string& what) {
  Definition definition;
  definition.description = what;
  definition.plain = std::move(plain);
  return definition;
}

/// Which numbers a parameter may be.
struct Range {
  double low = -kInfinity, high = kInfinity;
  bool low_open = false, high_open = false;

  bool holds(double x) const {
    return std::isfinite(x) && (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
  }
  std::string text() const {
    if (std::isinf(low) && std::isinf(high)) return "a number";
    if (std::isinf(high)) return fmt::format("{} {}", low_open ? ">" : ">=", low);
    return fmt::format("in {}{}, {}{}", low_open ? "(" : "[", low, high, high_open ? ")" : "]");
  }
};

constexpr Range kOpenUnit{0, 1, true, true};
constexpr Range kUnit{0, 1};
constexpr Range kPositive{0, kInfinity, true, true};

/// A family of divergences: how its name, its parameter and its making are declared.
struct Family {
  std::string name;
  std::vector<std::string> aliases;
  std::string parameter;
  std::string default_value;
  Range range;
  std::string summary;
  std::function<Definition(double)> make;
};

const std::vector<std::string> kPotentials = {"squared", "negative-entropy", "itakura-saito"};

std::vector<Family> f_divergences() {
  using namespace detail;
  const auto known = [](const char* what, auto make) {
    return [=](double x) { return from_generator(make(x), what); };
  };
  return {
      {"kl",
       {"forward-kl"},
       "",
       "",
       {},
       "KL(p||q) = sum p ln(p/q)",
       known("KL(p||q)", [](double) { return symmetric_generator(1, 0); })},
      {"reverse-kl",
       {},
       "",
       "",
       {},
       "KL(q||p) = sum q ln(q/p)",
       known("KL(q||p)", [](double) { return symmetric_generator(0, 1); })},
      {"jeffreys",
       {},
       "",
       "",
       {},
       "KL(p||q) + KL(q||p)",
       known("KL(p||q) + KL(q||p)", [](double) { return symmetric_generator(1, 1); })},
      {"symmetric-kl",
       {},
       "weight",
       "0.5",
       kUnit,
       "(1 - w) KL(p||q) + w KL(q||p)",
       known("(1 - w) KL(p||q) + w KL(q||p)", [](double w) { return symmetric_generator(1 - w, w); })},
      {"js",
       {"jensen-shannon"},
       "beta",
       "0.5",
       kOpenUnit,
       "Jensen-Shannon: b KL(p||m) + (1 - b) KL(q||m), m = b p + (1 - b) q",
       known("b KL(p||m) + (1 - b) KL(q||m), m = b p + (1 - b) q", js_generator)},
      {"skew-kl",
       {},
       "alpha",
       "0.1",
       kUnit,
       "KL(p || a p + (1 - a) q)",
       known("KL(p || a p + (1 - a) q)", skew_generator)},
      {"skew-reverse-kl",
       {},
       "alpha",
       "0.1",
       kUnit,
       "KL(q || a q + (1 - a) p)",
       known("KL(q || a q + (1 - a) p)", skew_reverse_generator)},
      {"alpha",
       {},
       "alpha",
       "0.5",
       {},
       "(sum p^a q^(1-a) - 1) / (a (a - 1)); its limits a = 1 and a = 0 are KL(p||q) and KL(q||p)",
       known("(sum p^a q^(1-a) - 1) / (a (a - 1))", [](double a) { return alpha_generator(a); })},
      {"amari",
       {},
       "alpha",
       "0",
       {},
       "Amari's convention: 4 / (1 - a^2) (1 - sum p^((1-a)/2) q^((1+a)/2)), alpha:(1-a)/2; a = -1 is KL(p||q)",
       known("4 / (1 - a^2) (1 - sum p^((1-a)/2) q^((1+a)/2))", [](double a) { return alpha_generator((1 - a) / 2); })},
      {"cressie-read",
       {},
       "lambda",
       "0.6666666666666666",
       {},
       "Cressie and Read's convention: sum p ((p/q)^l - 1) / (l (l + 1)), alpha:(l+1); l = 0 is KL(p||q)",
       known("sum p ((p/q)^l - 1) / (l (l + 1))", [](double l) { return alpha_generator(l + 1); })},
      {"chi2",
       {"pearson-chi2", "pearson"},
       "",
       "",
       {},
       "Pearson: sum (p - q)^2 / q",
       known("sum (p - q)^2 / q", [](double) { return alpha_generator(2, 2); })},
      {"neyman-chi2",
       {"reverse-chi2", "neyman"},
       "",
       "",
       {},
       "Neyman: sum (p - q)^2 / p",
       known("sum (p - q)^2 / p", [](double) { return alpha_generator(-1, 2); })},
      {"hellinger",
       {"squared-hellinger"},
       "",
       "",
       {},
       "squared Hellinger, without a half: sum (sqrt p - sqrt q)^2",
       known("sum (sqrt p - sqrt q)^2", [](double) { return hellinger_generator(); })},
      {"tv",
       {"total-variation"},
       "",
       "",
       {},
       "total variation: half of sum |p - q|",
       known("half of sum |p - q|", [](double) { return total_variation_generator(); })},
      {"le-cam",
       {"triangular"},
       "",
       "",
       {},
       "Le Cam, triangular: sum (p - q)^2 / (p + q)",
       known("sum (p - q)^2 / (p + q)", [](double) { return le_cam_generator(); })},
  };
}

std::vector<Family> other_divergences() {
  using namespace detail;
  const auto plain = [](const char* what, auto make) { return [=](double x) { return from_plain(make(x), what); }; };
  const auto renyi = [](double a) {
    if (a != 1) return from_plain(plain_renyi(a, 1), "ln(sum p^a q^(1-a)) / (a - 1)");
    Definition kl = from_generator(symmetric_generator(1, 0), "");
    kl.description = "the limit a = 1 of ln(sum p^a q^(1-a)) / (a - 1): KL(p||q)";
    kl.generator.reset();
    return kl;
  };
  return {
      {"renyi", {}, "alpha", "2", kPositive, "Renyi: ln(sum p^a q^(1-a)) / (a - 1); a = 1 is KL(p||q)", renyi},
      {"tsallis",
       {"tsallis-relative"},
       "q",
       "2",
       kPositive,
       "Tsallis relative entropy: (sum p^a q^(1-a) - 1) / (a - 1); a = 1 is KL(p||q)",
       [](double a) { return from_generator(alpha_generator(a, a), "(sum p^a q^(1-a) - 1) / (a - 1)"); }},
      {"bhattacharyya",
       {},
       "",
       "",
       {},
       "-ln sum sqrt(p q)",
       plain("-ln sum sqrt(p q)", [](double) { return plain_renyi(0.5, 0.5); })},
      {"cauchy-schwarz",
       {},
       "",
       "",
       {},
       "-ln((sum p q)^2 / (sum p^2 sum q^2))",
       plain("-ln((sum p q)^2 / (sum p^2 sum q^2))", [](double) { return plain_cauchy_schwarz(); })},
      {"density-power",
       {"beta"},
       "beta",
       "0.5",
       kPositive,
       "Basu et al. 1998: sum q^(1+b) - (1 + 1/b) p q^b + p^(1+b) / b",
       plain("sum q^(1+b) - (1 + 1/b) p q^b + p^(1+b) / b", plain_density_power)},
      {"gamma",
       {},
       "gamma",
       "0.5",
       kPositive,
       "Fujisawa and Eguchi 2008: ln(sum p^(1+g)) / (g (1+g)) - ln(sum p q^g) / g + ln(sum q^(1+g)) / (1+g)",
       plain("ln(sum p^(1+g)) / (g (1+g)) - ln(sum p q^g) / g + ln(sum q^(1+g)) / (1+g)", plain_gamma)},
      {"bregman",
       {},
       "potential",
       "squared",
       {},
       "Bregman's: sum phi(p) - phi(q) - phi'(q) (p - q), phi = x^2 (squared), x ln x - x (negative-entropy) or -ln x "
       "(itakura-saito)",
       nullptr},
      {"wasserstein-1",
       {"earth-mover"},
       "",
       "",
       {},
       "the cost of moving p to q where outcomes lie at 0, 1, 2, ... on a line",
       plain("the cost of moving p to q where outcomes lie at 0, 1, 2, ... on a line",
             [](double) { return plain_line({}); })},
  };
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list = f_divergences();
    for (Family& family : other_divergences()) list.push_back(std::move(family));
    return list;
  }();
  return all;
}

const Family& family_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (family.name == name || std::ranges::count(family.aliases, name)) return family;
    names.push_back(family.name);
    names.insert(names.end(), family.aliases.begin(), family.aliases.end());
  }
  fail("no divergence is named '{}'{}", name, suggestion(name, names));
}

Divergence finished(Definition definition, std::string name, std::string family = "", double parameter = 0) {
  definition.name = std::move(name);
  definition.family = std::move(family);
  definition.parameter = parameter;
  return Divergence(std::make_shared<const Definition>(std::move(definition)));
}

Divergence make_bregman(const std::string& potential) {
  if (!std::ranges::count(kPotentials, potential)) {
    fail("bregman: no potential is named '{}'{}; there are {}", potential, suggestion(potential, kPotentials),
         listing(kPotentials));
  }
  const std::string what = "Bregman's divergence of the potential " + potential;
  Definition definition;
  if (potential == "squared") {
    definition = from_plain(detail::plain_bregman({[](double x) { return x * x; }, [](double x) { return 2 * x; },
                                                   [](double) { return 2.0; }}),
                            what + ": sum (p - q)^2");
  } else if (potential == "itakura-saito") {
    definition = from_plain(detail::plain_itakura_saito(), what + ": sum p/q - ln(p/q) - 1");
  } else {
    definition = from_generator(detail::symmetric_generator(1, 0), "");
    definition.generator.reset();
    definition.description = what + ": KL(p||q)";
  }
  return finished(std::move(definition), "bregman:" + potential, "bregman");
}

}  // namespace

const std::string& Divergence::name() const { return definition_->name; }
const std::string& Divergence::description() const { return definition_->description; }
bool Divergence::has_generator() const { return definition_->generator.has_value(); }
RowDivergence Divergence::from_policy() const { return {*this, Direction::from_policy}; }
RowDivergence Divergence::from_reference() const { return {*this, Direction::from_reference}; }

const Generator& Divergence::generator() const {
  if (!has_generator()) fail("{} is no f-divergence and has no generator", name());
  return *definition_->generator;
}

Divergence divergence(std::string_view text) {
  const size_t colon = text.find(':');
  std::string word(text.substr(0, colon));
  std::ranges::replace(word, '_', '-');
  const Family& family = family_named(word);
  if (colon != std::string_view::npos && family.parameter.empty()) {
    fail("divergence '{}' takes no parameter, and '{}' has one", family.name, text);
  }
  if (family.parameter.empty()) return finished(family.make(0), family.name, family.name);
  const std::string value =
      colon == std::string_view::npos ? family.default_value : std::string(text.substr(colon + 1));
  if (family.name == "bregman") return make_bregman(value);

  const auto number = parsed_number(value);
  if (!number || !family.range.holds(*number)) {
    fail("divergence '{}': {} is '{}' and must be {}", family.name, family.parameter, value, family.range.text());
  }
  return finished(family.make(*number), fmt::format("{}:{}", family.name, *number), family.name, *number);
}

Divergence divergence(std::string name, Generator generator) {
  if (!generator.value || !generator.derivative) fail("divergence '{}': its generator needs both f and f'", name);
  const double at_one = generator.value(1);
  if (!(std::abs(at_one) <= 1e-9)) fail("divergence '{}': f(1) is {} and must be 0", name, at_one);
  Definition definition =
      from_plain(detail::plain_generator(generator), "f-divergence of a generator of the user's own");
  definition.generator = std::move(generator);
  return finished(std::move(definition), std::move(name));
}

Divergence bregman_divergence(std::string name, Potential potential) {
  return finished(
      from_plain(detail::plain_bregman(std::move(potential)), "Bregman's divergence of a potential of the user's own"),
      std::move(name));
}

Divergence line_divergence(std::vector<double> positions) {
  for (const double x : positions) {
    if (!std::isfinite(x)) fail("wasserstein-1: a position is {}", x);
  }
  return finished(from_plain(detail::plain_line(std::move(positions)), "the cost of moving p to q along a line"),
                  "wasserstein-1", "wasserstein-1");
}

const std::vector<DivergenceInfo>& known_divergences() {
  static const std::vector<DivergenceInfo> list = [] {
    std::vector<DivergenceInfo> infos;
    for (const Family& f : families()) {
      const std::string range = f.name == "bregman" ? listing(kPotentials) : f.parameter.empty() ? "" : f.range.text();
      infos.push_back({f.name, f.aliases, f.parameter, f.default_value, range, f.summary});
    }
    return infos;
  }();
  return list;
}

}  // namespace kullback
