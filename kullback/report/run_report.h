#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/report/page.h"

namespace kullback {

/// A number logged during training. A first part "train", "eval", "test", "validation" or "held-out" of the name
/// tells on which data: "train/loss" and "eval/loss" share a plot, as do "rewards/chosen" and "rewards/rejected".
struct MetricSeries {
  std::string name;
  std::vector<double> step, value;
  std::vector<double> low = {}, high = {};  ///< empty, or a 95 % interval
};

/// A held-out measurement before and after training.
struct HeldOutMeasure {
  std::string name;        ///< "preference accuracy"
  Interval before, after;  ///< `before` without value: not measured, or zero by definition
  NumberFormat format = {};
  std::string unit;
  Better better = Better::neither;
  std::string explanation;  ///< one sentence: what it is and how it was measured
  bool headline = false;    ///< also among the big numbers at the top
};

struct RunSample {
  std::string prompt, before, after;
  std::string chosen, rejected;  ///< may be empty
};

/// All that the report of a training run shows, as plain data.
struct RunReport {
  std::string title;                 ///< "DPO on smollm2-135m-instruct"
  std::vector<std::string> summary;  ///< short lines: model, data, method
  std::vector<std::string> warnings;
  std::vector<HeldOutMeasure> held_out;
  std::vector<MetricSeries> metrics;
  std::vector<Plot> plots;  ///< further plots of the method's own
  std::vector<RunSample> samples;
  std::vector<std::pair<std::string, std::int64_t>>
      rows;  ///< {"used for training", 110}, {"cut to --max-length", 3}, ...
  std::vector<std::pair<std::string, std::string>>
      resources;              ///< {"training time", "3 min 20 s"}, {"peak memory", ...}, ...
  std::string configuration;  ///< the resolved configuration, TOML
};

/// What a metric is, for its axis: "kl" -> {"KL(policy ‖ reference)", "nats/token"}. Unknown names are shown as they
/// are.
struct MetricMeaning {
  std::string title, unit = {};
  Scale scale = Scale::linear;
};
MetricMeaning metric_meaning(std::string_view name);

/// The numbers of a metrics.jsonl: each row is an object with "step" and numbers, perhaps in nested objects ({"eval":
/// {"loss": 1}} is "eval/loss"); null is NaN, texts are left out. A step logged again, after a resume, replaces what
/// was logged from there on. Throws Error naming file and line.
std::vector<MetricSeries> read_metrics(const std::filesystem::path& path);

/// The plots of the report, each with a file name without ending.
std::vector<std::pair<std::string, Plot>> run_plots(const RunReport& report);
Page run_page(const RunReport& report);

/// Writes `report.html` and `plots/NAME.svg` into an existing folder. Files are written aside and renamed.
void write_run_report(const RunReport& report, const std::filesystem::path& folder);

}  // namespace kullback
