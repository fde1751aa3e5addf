#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kullback/report/page.h"

namespace kullback {

/// A number logged during training. Names may have a prefix, "train/loss" and "eval/loss": those with the same rest share a
/// plot.
struct MetricSeries {
  std::string name;
  std::vector<double> step, value;
  std::vector<double> low, high;  ///< empty, or a 95 % interval
};

/// A held-out measurement before and after training.
struct HeldOutMeasure {
  std::string name;         ///< "preference accuracy"
  Interval before, after;   ///< `before` without value: not measured, or zero by definition
  NumberFormat format = {};
  std::string unit;
  Better better = Better::neither;
  std::string explanation;
  bool headline = false;    ///< also among the big numbers at the top
};

struct RunSample {
  std::string prompt, before, after, chosen, rejected;  ///< `chosen` and `rejected` may be empty
};

/// All that the report of a training run shows, as plain data.
struct RunReport {
  std::string title;                     ///< "DPO on smollm2-135m-instruct"
  std::vector<std::string> summary;      ///< short lines: model, data, method
  std::string configuration;             ///< the resolved configuration, TOML
  std::vector<MetricSeries> metrics;
  std::vector<HeldOutMeasure> held_out;
  std::vector<Plot> plots;               ///< further plots of the method's own
  std::vector<RunSample> samples;
  std::vector<std::pair<std::string, std::int64_t>> rows;  ///< "used for training", "cut to the maximum length", ...
  std::vector<std::pair<std::string, std::string>> resources;  ///< "time", "peak memory", "tokens per second"
  std::vector<std::string> warnings;
};

/// What a metric is, for its axis: "kl" -> {"KL(policy || reference)", "nats/token"}. Unknown names are shown as they are.
struct MetricMeaning {
  std::string title, unit;
  Scale scale = Scale::linear;
};
MetricMeaning metric_meaning(std::string_view name);

/// The numbers of a metrics.jsonl: each row is an object with "step" and numbers; null is NaN, texts are left out. Throws
/// Error naming file and line.
std::vector<MetricSeries> read_metrics(const std::filesystem::path& path);

/// The plots of the report with a file name (without ending) for each.
std::vector<std::pair<std::string, Plot>> run_plots(const RunReport& report);
Page run_page(const RunReport& report);

/// Writes `report.html` and `plots/NAME.svg` to an existing folder.
void write_run_report(const RunReport& report, const std::filesystem::path& folder);

}  // namespace kullback
