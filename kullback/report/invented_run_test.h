#pragma once

#include <cmath>
#include <numbers>
#include <random>
#include <string>

#include "kullback/report/run_report.h"

// A run that never was, with all that a report can show. For tests, and to be looked at in a browser.
namespace kullback::invented {

inline Plot frontier() {
  Plot plot{.title = "Reward against divergence", .note = "Five losses at several strengths; bars are 95% intervals."};
  plot.x = {.title = "KL(policy ‖ reference)", .unit = "nats/token", .scale = Scale::logarithmic};
  plot.y = {.title = "Held-out accuracy", .unit = "share of pairs"};
  Series front{.name = "Pareto front", .mark = Mark::step, .dashed = true, .colour = 7};
  const char* names[] = {"dpo", "ipo", "tdpo", "simpo", "kto"};
  for (int m = 0; m < 5; ++m) {
    Series series{.name = names[m], .mark = Mark::points, .colour = m};
    for (int i = 0; i < 4; ++i) {
      const double kl = 0.004 * std::pow(3, i) * (1 + 0.2 * m), accuracy = 0.55 + 0.1 * i - 0.012 * m * i;
      series.x.push_back(kl);
      series.y.push_back(accuracy);
      series.low.push_back(accuracy - 0.05);
      series.high.push_back(accuracy + 0.05);
      series.x_low.push_back(kl * 0.85);
      series.x_high.push_back(kl * 1.15);
      series.labels.push_back(std::string(names[m]) + "-" + std::to_string(i));
      if (m == 0) {
        front.x.push_back(kl);
        front.y.push_back(accuracy);
      }
    }
    series.show_labels = m < 2;
    plot.series.push_back(std::move(series));
  }
  plot.series.push_back(std::move(front));
  plot.references = {{ReferenceLine::Direction::horizontal, 0.5, "chance"},
                     {ReferenceLine::Direction::vertical, 0.05, "limit"}};
  return plot;
}

inline Plot by_class() {
  Plot plot{.title = "Divergence by token class"};
  plot.x = {.title = "Mean divergence", .unit = "nats/token"};
  plot.y.categories = {"words",       "first token of a word",       "digits",
                       "punctuation", "white space and line breaks", "special tokens"};
  Series forward{.name = "KL(reference ‖ policy)", .mark = Mark::horizontal_bars},
      reverse{.name = "KL(policy ‖ reference)", .mark = Mark::horizontal_bars};
  for (int i = 0; i < 6; ++i) {
    const double value = 0.08 / (1 + i);
    forward.x.push_back(value);
    reverse.x.push_back(value * 1.3);
    forward.low.push_back(value * 0.8);
    forward.high.push_back(value * 1.2);
    reverse.low.push_back(value);
    reverse.high.push_back(value * 1.6);
    forward.y.push_back(i);
    reverse.y.push_back(i);
  }
  plot.series = {forward, reverse};
  return plot;
}

inline Plot by_position() {
  Plot plot{.title = "Divergence by position in the response"};
  plot.x = {.title = "Position", .unit = "tokens"};
  plot.y = {.title = "KL(policy ‖ reference)", .unit = "nats/token"};
  Series series{.name = "mean and 95% interval"};
  for (int i = 0; i < 120; ++i) {
    const double value = 0.09 * std::exp(-i / 25.0) + 0.02 + 0.004 * std::sin(i * 0.9);
    series.x.push_back(i);
    series.y.push_back(i == 70 ? std::nan("") : value);
    series.low.push_back(value * 0.8);
    series.high.push_back(value * (1.2 + i / 200.0));
  }
  plot.series = {series};
  return plot;
}

inline Plot by_length() {
  Plot plot{.title = "Response length", .note = "Of 40 held-out answers."};
  plot.x = {.title = "Length", .unit = "tokens"};
  plot.y = {.title = "Answers"};
  Series before{.name = "before", .mark = Mark::bars}, after{.name = "after", .mark = Mark::bars};
  for (int i = 0; i < 10; ++i) {
    before.x.push_back(10 + 20 * i);
    after.x.push_back(10 + 20 * i);
    before.y.push_back(std::round(8 * std::exp(-(i - 6) * (i - 6) / 8.0)));
    after.y.push_back(std::round(11 * std::exp(-(i - 2) * (i - 2) / 4.0)));
  }
  plot.series = {before, after};
  return plot;
}

inline RunReport run() {
  RunReport report;
  report.title = "DPO on smollm2-135m-instruct";
  report.summary = {"110 preference pairs, 40 held out · LoRA r = 8 on all linear layers · β = 0.1",
                    "Kullback 0.1.0 · 30 November 2026 · 3 min 12 s on 2 cores"};
  report.warnings = {"3 rows were dropped: their response was cut away entirely by --max-length 512."};
  report.held_out = {
      {"preference accuracy",
       {0.525, 0.37, 0.68},
       {0.925, 0.84, 0.98},
       percent(1),
       "",
       Better::higher,
       "share of held-out pairs whose chosen response has the higher implicit reward (before: the higher mean "
       "log-probability).",
       true},
      {"reward margin",
       {0, 0, 0},
       {1.842, 1.61, 2.07},
       fixed(2),
       "nats",
       Better::higher,
       "mean difference of the implicit rewards.",
       true},
      {"KL(policy ‖ reference)",
       {},
       {0.0412, 0.0371, 0.0455},
       significant(3),
       "nats/token",
       Better::neither,
       "exact sum over the vocabulary at each token of the held-out responses, mean over tokens.",
       true},
      {"KL(reference ‖ policy)",
       {},
       {0.0385, 0.0350, 0.0421},
       significant(3),
       "nats/token",
       Better::neither,
       "as above, the other direction.",
       false},
      {"entropy", {1.31, 1.28, 1.34}, {1.22, 1.19, 1.26}, significant(3), "nats/token", Better::neither, "", false},
      {"response length", {142.3, 121, 163}, {61.8, 50.2, 74.1}, fixed(1), "tokens", Better::neither, "", true}};
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise;
  MetricSeries loss{"train/loss", {}, {}}, eval{"eval/loss", {}, {}}, chosen{"rewards/chosen", {}, {}},
      rejected{"rewards/rejected", {}, {}}, kl{"kl", {}, {}}, rate{"learning_rate", {}, {}}, norm{"grad_norm", {}, {}},
      accuracy{"train/accuracy", {}, {}}, held{"eval/accuracy", {}, {}};
  for (int step = 1; step <= 220; ++step) {
    const double t = step / 220.0;
    const auto add = [&](MetricSeries& series, double value) {
      series.step.push_back(step);
      series.value.push_back(value);
    };
    add(loss, std::max(0.02, 0.693 * std::exp(-1.8 * t) + 0.06 * noise(random)));
    add(chosen, 0.8 * t + 0.15 * noise(random));
    add(rejected, -1.4 * t + 0.2 * noise(random));
    add(kl, 0.045 * t * t + 0.002 * std::abs(noise(random)));
    add(rate, 5e-5 * (step < 20 ? step / 20.0 : 0.5 * (1 + std::cos(std::numbers::pi * (step - 20) / 200.0))));
    add(norm, 3 * std::exp(-t) + 0.4 * std::abs(noise(random)));
    add(accuracy, std::round(8 * std::min(1.0, 0.5 + 0.5 * t + 0.1 * noise(random))) / 8);
    if (step % 20 == 0) {
      add(eval, 0.693 * std::exp(-1.5 * t) + 0.02);
      add(held, 0.55 + 0.38 * t);
    }
  }
  report.metrics = {loss, eval, accuracy, held, chosen, rejected, kl, norm, rate};
  report.plots = {by_position(), by_class(), by_length(), frontier()};
  report.samples = {{"How do I boil an egg?",
                     "That is a great question! Eggs are a wonderful food, and there are many ways to prepare them. "
                     "Before we begin, it is worth thinking about what kind of egg "
                     "you have, how large it is, and what you would like to do with it. Many people around the world "
                     "enjoy eggs every day, and …",
                     "Put the egg in boiling water for 7 minutes, then in cold water. It comes out just set.",
                     "Boil water, lower the egg in, wait 7 minutes, cool it under the tap.",
                     "Well, eggs have a long and interesting history, …"},
                    {"Write </script><b>bold</b> & \"quotes\".\nSecond line.", "</script><script>alert(1)</script>",
                     "<b>bold</b> & \"quotes\" — ½, 한국어, 日本語, עברית, 🙂", "", ""}};
  report.rows = {
      {"used for training", 110}, {"held out", 40}, {"cut to --max-length", 5}, {"dropped: response cut away", 3}};
  report.resources = {{"training time", duration_text(192)},
                      {"evaluation time", duration_text(41.5)},
                      {"peak memory", bytes_text(1.9e9)},
                      {"tokens per second", "412"}};
  report.configuration =
      "method = \"dpo\"\nmodel = \"smollm2-135m-instruct\"\ndata = \"preferences.jsonl\"\n\n[dpo]\nbeta = 0.1\nloss = "
      "\"sigmoid\"\n\n[lora]\nr = 8\nalpha = 16\n";
  return report;
}

}  // namespace kullback::invented
