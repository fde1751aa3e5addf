#include "kullback/train/held_out_distillation.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/random.h"
#include "kullback/train/places.h"
#include "kullback/train/reference.h"

namespace kullback {

using at::Tensor;

namespace {

const std::vector<std::pair<std::string, std::string>> names{{"forward_kl", "KL(teacher || student)"},
                                                             {"backward_kl", "KL(student || teacher)"},
                                                             {"teacher_tv", "total variation"},
                                                             {"js", "Jensen-Shannon"}};

double calibration_error(const std::vector<HeldOutDistillation::Calibration>& rows, std::span<const size_t> drawn) {
  HeldOutDistillation::Calibration sum;
  double tokens = 0, error = 0;
  for (size_t b = 0; b < HeldOutDistillation::bins; ++b) {
    for (const size_t i : drawn) {
      sum.confidence[b] += rows[i].confidence[b], sum.right[b] += rows[i].right[b], tokens += rows[i].tokens[b];
    }
    error += std::abs(sum.confidence[b] - sum.right[b]);
  }
  return tokens > 0 ? error / tokens : 0;
}

}  // namespace

Interval HeldOutDistillation::calibration_error(uint64_t seed) const {
  return bootstrap_of(calibration.size(), seed, "calibration",
                      [&](std::span<const size_t> drawn) { return kullback::calibration_error(calibration, drawn); });
}

std::vector<Plot> HeldOutDistillation::plots(uint64_t seed) const {
  std::vector<Plot> plots;
  if (!by_place.empty() && !by_place[0].empty()) {
    for (const bool kl : {true, false}) {
      plots.push_back(
          place_plot(by_place, seed, kl ? std::vector{names[0], names[1]} : std::vector{names[2], names[3]}));
      plots.back().title = kl ? "Distance to the teacher by place in the response"
                              : "Total variation and Jensen-Shannon by place in the response";
      plots.back().note = "Exact, mean over held-out tokens at each place, with 95 % intervals over responses.";
    }
  }
  Calibration sum;
  for (const Calibration& row : calibration) {
    for (size_t b = 0; b < bins; ++b)
      sum.confidence[b] += row.confidence[b], sum.right[b] += row.right[b], sum.tokens[b] += row.tokens[b];
  }
  Plot plot{.title = "Calibration of the student",
            .note = "Share of held-out tokens that the student's likeliest token got right, by its probability."};
  plot.x = {.title = "probability of the likeliest token", .minimum = 0, .maximum = 1};
  plot.y = {.title = "share that is right", .minimum = 0, .maximum = 1};
  Series measured{.name = "student", .mark = Mark::points}, perfect{.name = "perfectly calibrated", .dashed = true};
  for (size_t b = 0; b < bins; ++b) {
    if (sum.tokens[b] == 0) continue;
    measured.x.push_back(sum.confidence[b] / sum.tokens[b]), measured.y.push_back(sum.right[b] / sum.tokens[b]);
  }
  perfect.x = {0, 1}, perfect.y = {0, 1};
  plot.series = {measured, perfect};
  if (!measured.x.empty()) plots.push_back(std::move(plot));
  return plots;
}

Figures held_out_figures(const Rows& student, const Rows& teacher, const Tensor& labels, bool truncated,
                         HeldOutDistillation& details) {
  const bool compared = teacher.hidden.defined();
  HeadRequest wanted{.labels = labels, .logps = true, .scores = {}, .top_k = 1, .divergences = {}};
  std::vector<size_t> measured;
  if (compared) {
    wanted.divergences = {divergence("kl").from_reference()}, measured = {0};
    if (!truncated) wanted.divergences.push_back(divergence("kl").from_policy()), measured.push_back(1);
    wanted.divergences.push_back(divergence("tv").from_policy()), measured.push_back(2);
    wanted.divergences.push_back(divergence("js").from_policy()), measured.push_back(3);
  }
  const HeadStatistics s = compared ? head_statistics(student, teacher, wanted) : head_statistics(student, wanted);
  Figures row;
  row["loss"] = total(-s.logps);
  const Tensor first = s.top_ids.flatten();
  const Tensor right = (first == labels).to(at::kDouble).contiguous();
  row["top_1"] = total(right);
  Figures places;
  for (size_t n = 0; n < measured.size(); ++n) {
    const std::string& name = names[measured[n]].first;
    row[name] = total(s.divergences[n]);
    add_by_place(name, s.divergences[n], places);
  }
  if (compared) {
    const HeadStatistics theirs = head_statistics(teacher, {.labels = {}, .scores = {}, .top_k = 1, .divergences = {}});
    row["agreement"] = total((first == theirs.top_ids.flatten()).to(at::kDouble));
  }
  HeldOutDistillation::Calibration calibration;
  const Tensor confidence = at::exp(s.top_logps.flatten().to(at::kDouble)).contiguous();
  for (int64_t t = 0; t < confidence.numel(); ++t) {
    const double p = confidence.const_data_ptr<double>()[t];
    const auto b =
        static_cast<size_t>(std::clamp<double>(p * HeldOutDistillation::bins, 0, HeldOutDistillation::bins - 1));
    calibration.confidence[b] += p, calibration.right[b] += right.const_data_ptr<double>()[t],
        calibration.tokens[b] += 1;
  }
  details.calibration.push_back(std::move(calibration));
  details.by_place.push_back(std::move(places));
  return row;
}

std::vector<MeasureText> distillation_measures(bool truncated) {
  const std::string of = truncated ? ", the teacher's rows being those that were recorded, renormalised" : "";
  return {
      {"forward_kl", "KL(teacher || student)", "nats/token", Better::lower,
       "exact, over the whole vocabulary at every held-out response token" + of, true},
      {"backward_kl", "KL(student || teacher)", "nats/token", Better::lower, "the same, the other way round", true},
      {"teacher_tv", "TV(teacher, student)", "", Better::lower, "total variation, mean over held-out tokens" + of},
      {"js", "JS(teacher, student)", "nats/token", Better::lower, "Jensen-Shannon divergence, the same way" + of},
      {"agreement", "both say the same", "", Better::higher,
       "share of held-out tokens at which student and teacher have the same likeliest token", true, percent(1)},
      {"loss", "held-out loss", "nats/token", Better::lower, "mean over held-out response tokens of -log student"},
      {"perplexity", "perplexity", "", Better::lower, "exp of the held-out loss", true},
      {"top_1", "likeliest token is right", "", Better::higher,
       "share of held-out response tokens that the student would have said first", false, percent(1)},
      {"calibration_error", "expected calibration error", "", Better::lower,
       "mean gap between the likeliest token's probability and how often it is right, in 10 bins", false, percent(2)}};
}

void add_perplexity(std::map<std::string, Interval>& figures) {
  const auto loss = figures.find("loss");
  if (loss == figures.end()) return;
  figures["perplexity"] = {std::exp(loss->second.value), std::exp(loss->second.low), std::exp(loss->second.high)};
}

}  // namespace kullback
