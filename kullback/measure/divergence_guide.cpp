// The page of a divergence: what it does where laws differ, and where a student ends that is fitted under it.
#include "kullback/measure/divergence_guide.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/divergence/between_vectors.h"
#include "kullback/report/number.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

/// In these, p is what is to be learnt (data, a teacher), q what learns it, unless the words say otherwise.
const std::map<std::string, const char*> kWhen = {
    {"kl",
     "The divergence of maximum likelihood: q has to say everything that p says, and is infinitely wrong where it "
     "forgets something. Its gradient needs samples of p alone. A q that is too small for p spreads itself over "
     "all of it, and puts mass where p has little."},
    {"reverse-kl",
     "The penalty of RLHF and the aim of MiniLLM: q must say nothing that p would not say, and may leave modes of "
     "p out. Its gradient needs samples of q and p's log-probabilities at them. Start it from a q that already "
     "says sensible things: where q says noise its gradient is mostly noise."},
    {"jeffreys",
     "When neither forgetting nor inventing may pass: both KLs with equal weight, infinite as soon as either is."},
    {"symmetric-kl", "A dial between kl (weight 0) and reverse-kl (weight 1); 0.5 is half of jeffreys."},
    {"js",
     "Both laws against their mixture, so that it is always finite and bounded: the safe choice between laws that "
     "may not overlap. beta near 0 behaves as kl, near 1 as reverse-kl (the dial of GKD). Far from p its gradient "
     "is weak, as all bounded divergences' are."},
    {"skew-kl",
     "kl to a mixture that holds a little of p, so that no token costs more than ln(1/alpha) and the gradient is "
     "bounded: DistiLLM's loss. alpha 0 is kl."},
    {"skew-reverse-kl", "The same for reverse-kl: q is compared with a p into which a little of q is mixed."},
    {"alpha",
     "One family for kl (1), reverse-kl (0), Hellinger (0.5, up to a factor) and both chi-squared (2 and -1): "
     "sweep it to see which side of mode covering and mode seeking a task wants. Beyond [0, 1] it weighs ratios by "
     "powers, and samples estimate it badly."},
    {"amari", "The alpha divergence in Amari's convention, for comparison with papers that use it."},
    {"cressie-read", "The alpha divergence as statisticians write it for tests of counts; their default is 2/3."},
    {"chi2",
     "Variance of the ratio p/q under q: what importance sampling from q for p will cost, and a strict guard "
     "against a q that forgets. A single token with a large ratio decides its value."},
    {"neyman-chi2", "The same with the laws exchanged: the variance of q/p under p."},
    {"hellinger",
     "Finite, symmetric, its root a metric: for comparing many laws with each other, and as a bounded loss that "
     "neither forgives nor overrates what is forgotten."},
    {"tv",
     "The largest difference in the probability of any event: the number that people understand, and the bound on "
     "how often two models' tokens can be told apart (the share that speculative decoding rejects). As a loss its "
     "gradient does not grow with the error."},
    {"le-cam", "Behaves much as js does, without logarithms: symmetric, and at most 2."},
    {"renyi",
     "For guarantees: privacy and PAC-Bayes bounds are stated in it. Orders above 1 ask for the worst ratios, "
     "order 1 is kl, and the limit of infinite order is the log of the largest ratio."},
    {"tsallis",
     "renyi's sum without its logarithm: an f-divergence, but not additive over independent laws. q = 1 is kl."},
    {"bhattacharyya", "Minus the log of the overlap: renyi's order 1/2 halved; grows where hellinger saturates."},
    {"cauchy-schwarz",
     "The angle between two laws as vectors: blind to their lengths, symmetric, in closed form for mixtures of "
     "Gaussians."},
    {"density-power",
     "Robust fitting: what p says where q is small counts by q's power beta, so that outliers in p do not pull q. "
     "beta to 0 is kl; larger forgives more and learns slower."},
    {"gamma",
     "As density-power, with outliers' total weight forgiven too (Fujisawa and Eguchi): for data of which a share "
     "is wrong."},
    {"bregman",
     "A convex function's own distance. squared is the Brier score, negative-entropy is kl, itakura-saito compares "
     "by ratios and is made for spectra."},
    {"wasserstein-1",
     "Where outcomes have an order and a near miss is better than a far one: ratings, digits, bins. Between "
     "tokens, whose numbers mean nothing, use it with positions of your own (`line_divergence`)."}};

constexpr int kOutcomes = 41;

std::vector<double> normal_logits(double mean, double deviation) {
  std::vector<double> logits(kOutcomes);
  for (int i = 0; i < kOutcomes; ++i) logits[i] = -0.5 * std::pow((i - mean) / deviation, 2);
  return logits;
}

std::vector<double> normal_law(double mean, double deviation) {
  std::vector<double> law = normal_logits(mean, deviation);
  double total = 0;
  for (double& x : law) total += x = std::exp(x);
  for (double& x : law) x /= total;
  return law;
}

std::vector<double> two_modes() {
  std::vector<double> law = normal_law(11, 3);
  const std::vector<double> second = normal_law(29, 2);
  for (int i = 0; i < kOutcomes; ++i) law[i] = 0.65 * law[i] + 0.35 * second[i];
  return law;
}

/// The best on a grid of means and widths, which finds the best of several local minima, as descent would not.
Landing fitted(const Divergence& d, const std::vector<double>& teacher, bool covering) {
  std::vector<double> teacher_logits;
  for (const double x : teacher) teacher_logits.push_back(std::log(x));
  Landing best{.value = std::numeric_limits<double>::infinity()};
  for (double mean = 0; mean < kOutcomes; mean += 0.25) {
    for (double deviation = 1; deviation < 40; deviation *= 1.05) {
      const std::vector<double> student = normal_logits(mean, deviation);
      const double value =
          covering ? between_logits(d, teacher_logits, student) : between_logits(d, student, teacher_logits);
      if (value < best.value) best = {.mean = mean, .deviation = deviation, .law = {}, .value = value};
    }
  }
  if (std::isfinite(best.value)) best.law = normal_law(best.mean, best.deviation);
  return best;
}

double of(const Divergence& d, std::vector<double> p, std::vector<double> q) { return between(d, p, q); }

bool is_symmetric(const Divergence& d) {
  const std::vector<std::pair<std::vector<double>, std::vector<double>>> laws = {
      {{0.7, 0.2, 0.1}, {0.1, 0.3, 0.6}}, {{0.05, 0.9, 0.05}, {0.4, 0.35, 0.25}}, {{0.5, 0.25, 0.25}, {0.2, 0.2, 0.6}}};
  return std::ranges::all_of(laws, [&](const auto& pair) {
    const double one = of(d, pair.first, pair.second), other = of(d, pair.second, pair.first);
    return std::abs(one - other) <= 1e-12 * std::max(1.0, std::abs(one));
  });
}

double ratio_to_chi2(const Divergence& d) {
  const std::vector<double> q = {0.4, 0.35, 0.25}, p = {0.4002, 0.3499, 0.2499};
  return of(d, p, q) / of(divergence("chi2"), p, q);
}

const DivergenceInfo* info_of(std::string_view name) {
  std::string word(name.substr(0, name.find(':')));
  std::ranges::replace(word, '_', '-');
  for (const DivergenceInfo& info : known_divergences()) {
    if (info.name == word || std::ranges::count(info.aliases, word)) return &info;
  }
  return nullptr;
}

Table facts(const DivergenceGuide& g) {
  Table table{.columns = {text_column("of two laws p and q"), number_column("D(p || q)")}};
  const auto row = [&](const char* what, double value) { table.rows.push_back({Cell(what), Cell(value)}); };
  row("q never says what p says half the time: (1/2, 1/2) and (1, 0)", g.forgotten);
  row("q says half the time what p never says: (1, 0) and (1/2, 1/2)", g.invented);
  row("nothing in common: (1, 0) and (0, 1)", g.disjoint);
  row("a weighted coin and a fair one: (0.9, 0.1) and (0.5, 0.5)", of(g.divergence, {0.9, 0.1}, {0.5, 0.5}));
  row("the same, exchanged", of(g.divergence, {0.5, 0.5}, {0.9, 0.1}));
  row("close laws, as a multiple of chi-squared", g.near);
  return table;
}

std::string landing_text(const Landing& l) {
  return std::isfinite(l.value)
             ? fmt::format("mean {:.1f}, deviation {:.1f}, with {} left", l.mean, l.deviation, number_text(l.value))
             : "nowhere: it is infinite for each of them";
}

}  // namespace

bool names_divergence(std::string_view name) { return info_of(name) != nullptr; }

DivergenceGuide divergence_guide(std::string_view name) {
  const Divergence d = divergence(name);
  DivergenceGuide g{.info = *info_of(name), .divergence = d};
  g.when = kWhen.at(g.info.name);
  g.symmetric = is_symmetric(d);
  g.forgotten = of(d, {0.5, 0.5}, {1, 0}), g.invented = of(d, {1, 0}, {0.5, 0.5}), g.disjoint = of(d, {1, 0}, {0, 1});
  g.near = ratio_to_chi2(d);
  g.teacher = two_modes();
  g.covering = fitted(d, g.teacher, true), g.seeking = fitted(d, g.teacher, false);
  return g;
}

std::string explain(const DivergenceGuide& g) {
  std::string page = fmt::format("# {}\n\n{}\n\nA divergence{}{}; {}.\n", g.divergence.name(), g.info.summary,
                                 g.divergence.has_generator() ? " made of a generator f: D = sum q f(p/q)" : "",
                                 g.info.aliases.empty() ? "" : "; also called " + listing(g.info.aliases),
                                 g.symmetric ? "symmetric" : "not symmetric");
  if (!g.info.parameter.empty()) {
    page += fmt::format("\nParameter `{}`, {}, {} where none is given: `{}:{}`.\n", g.info.parameter, g.info.range,
                        g.info.default_value, g.info.name, g.info.default_value);
  }
  if (g.divergence.has_generator()) {
    const Generator& f = g.divergence.generator();
    const std::string& what = g.divergence.description();
    page += fmt::format("\n## Generator\n\n```\n{}\nf(0) = {}, f(u)/u -> {}\n```\n", what.substr(what.find("f(u) = ")),
                        number_text(f.at_zero), number_text(f.slope_at_infinity));
  }
  page += fmt::format("\n## When to use it\n\n{}\n", g.when);
  page += "\n## What it says\n\nIn nats where it is made of logarithms.\n\n" + table_markdown(facts(g));
  page += fmt::format(
      "\n## Where a student lands\n\nA normal law on 0 ... {}, fitted to a teacher of two modes (0.65 at 11, 0.35 at "
      "29), the best of "
      "all means and widths:\n\n- least D(teacher || student): {}\n- least D(student || teacher): {}\n",
      kOutcomes - 1, landing_text(g.covering), landing_text(g.seeking));
  page += fmt::format("\n## Use it\n\n```\nkullback measure p.json q.json --divergence {}\n```\n", g.divergence.name());
  return page;
}

Json guide_json(const DivergenceGuide& g) {
  const auto value = [](double x) { return std::isfinite(x) ? Json(x) : Json(x > 0 ? "inf" : "-inf"); };
  const auto landing = [&](const Landing& l) {
    return Json{{"mean", l.mean}, {"deviation", l.deviation}, {"value", value(l.value)}};
  };
  return {{"name", g.divergence.name()},
          {"aliases", g.info.aliases},
          {"parameter", g.info.parameter},
          {"default", g.info.default_value},
          {"range", g.info.range},
          {"summary", g.info.summary},
          {"when", g.when},
          {"f_divergence", g.divergence.has_generator()},
          {"symmetric", g.symmetric},
          {"forgotten", value(g.forgotten)},
          {"invented", value(g.invented)},
          {"disjoint", value(g.disjoint)},
          {"multiple_of_chi2", value(g.near)},
          {"covering", landing(g.covering)},
          {"seeking", landing(g.seeking)}};
}

Plot landing_plot(const DivergenceGuide& g) {
  std::vector<double> outcomes(kOutcomes);
  for (int i = 0; i < kOutcomes; ++i) outcomes[i] = i;
  Plot plot{.title = "Where a student lands under " + g.divergence.name(),
            .x = {.title = "outcome"},
            .y = {.title = "probability", .minimum = 0}};
  plot.series.push_back({.name = "teacher", .mark = Mark::bars, .x = outcomes, .y = g.teacher, .faint = true});
  const auto student = [&](const char* name, const Landing& l, bool dashed) {
    if (!l.law.empty()) plot.series.push_back({.name = name, .x = outcomes, .y = l.law, .dashed = dashed});
  };
  student("least D(teacher || student)", g.covering, false);
  student("least D(student || teacher)", g.seeking, true);
  return plot;
}

}  // namespace kullback
