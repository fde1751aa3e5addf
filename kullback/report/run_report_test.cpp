#include "kullback/report/run_report.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/report/invented_run_test.h"
#include "kullback/report/look_test.h"
#include "kullback/report/markup_test.h"

namespace kullback {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace files = std::filesystem;

files::path written(const std::string& name, const std::string& text) {
  const files::path path = look_folder("metrics") / name;
  std::ofstream(path) << text;
  return path;
}

TEST(RunReport, WritesThePageAndThePlots) {
  const files::path folder = look_folder("run");
  write_run_report(invented::run(), folder);
  const std::string page = read_text(folder / "report.html");
  EXPECT_EQ(markup_fault(page), "");
  EXPECT_LT(page.size(), 600'000U);
  for (const char* word :
       {"DPO on smollm2-135m-instruct", "52.5%", "92.5%", "0.0412", "95% interval", "Put the egg in boiling water",
        "beta = 0.1", "dropped: response cut away", "+40.0 points"}) {
    EXPECT_THAT(page, HasSubstr(word));
  }
  std::size_t plots = 0;
  for (const auto& entry : files::directory_iterator(folder / "plots")) {
    EXPECT_EQ(markup_fault(read_text(entry.path())), "") << entry.path();
    ++plots;
  }
  EXPECT_EQ(plots, run_plots(invented::run()).size());
  EXPECT_TRUE(files::exists(folder / "plots" / "loss.svg"));
}

TEST(RunReport, AnEmptyRunMakesAPage) { EXPECT_EQ(markup_fault(page_html(run_page({}))), ""); }

TEST(RunReport, MetricsOfOneQuantityShareAPlot) {
  RunReport report;
  report.metrics = {{"train/loss", {1, 2}, {1, 0.5}},
                    {"eval/loss", {2}, {0.7}},
                    {"rewards/chosen", {1}, {1}},
                    {"rewards/rejected", {1}, {-1}},
                    {"epoch", {1}, {1}}};
  const auto plots = run_plots(report);
  ASSERT_EQ(plots.size(), 2U);
  EXPECT_EQ(plots[0].first, "loss");
  ASSERT_EQ(plots[0].second.series.size(), 2U);
  EXPECT_EQ(plots[0].second.series[1].name, "eval");
  EXPECT_EQ(plots[1].first, "rewards");
  EXPECT_EQ(plots[1].second.series[0].name, "chosen");
  EXPECT_EQ(plots[1].second.y.unit, "nats");
}

TEST(RunReport, NoisyMetricsGetACentredMeanAndSmoothOnesDoNot) {
  MetricSeries noisy{"noise", {}, {}}, smooth{"learning_rate", {}, {}};
  for (int i = 0; i < 200; ++i) {
    noisy.step.push_back(i);
    smooth.step.push_back(i);
    noisy.value.push_back(3 + (i % 2 == 0 ? 1 : -1));
    smooth.value.push_back(i);
  }
  RunReport report;
  report.metrics = {noisy, smooth};
  const auto plots = run_plots(report);
  ASSERT_EQ(plots[0].second.series.size(), 2U);
  EXPECT_TRUE(plots[0].second.series[0].faint);
  EXPECT_NEAR(plots[0].second.series[1].y[100], 3, 0.1);
  EXPECT_EQ(plots[0].second.series[0].colour, plots[0].second.series[1].colour);
  EXPECT_EQ(plots[1].second.series.size(), 1U);
}

TEST(RunReport, PlotsWithOneNameGetTwoFiles) {
  RunReport report;
  report.plots = {Plot{.title = "KL / token"}, Plot{.title = "KL-token"}, Plot{.title = "../../etc"},
                  Plot{.title = "日本"}};
  const auto plots = run_plots(report);
  EXPECT_EQ(plots[0].first, "kl-token");
  EXPECT_EQ(plots[1].first, "kl-token-2");
  EXPECT_EQ(plots[2].first, "etc");
  EXPECT_EQ(plots[3].first, "plot");
}

TEST(ReadMetrics, BoundsBecomeTheIntervalOfTheirMetric) {
  const auto path = written("bounds.jsonl", R"({"step":1,"kl":0.2,"kl_low":0.1,"kl_high":0.3,"all_time_high":7}
{"step":2,"kl":0.4,"kl_low":0.3,"kl_high":0.6}
)");
  const auto metrics = read_metrics(path);
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].name, "kl");
  EXPECT_THAT(metrics[0].low, ElementsAre(0.1, 0.3));
  EXPECT_THAT(metrics[0].high, ElementsAre(0.3, 0.6));
  EXPECT_EQ(metrics[1].name, "all_time_high");
}

TEST(ReadMetrics, FlattensReplacesRepeatedStepsAndKeepsGaps) {
  const auto path = written("metrics.jsonl", R"({"step":1,"loss":1.0,"note":"x"}
{"step":2,"loss":0.9,"eval":{"loss":0.8}}
{"step":3,"loss":0.1}
{"step":2,"loss":0.7}
{"step":3,"loss":null}
)");
  const auto metrics = read_metrics(path);
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].name, "loss");
  EXPECT_THAT(metrics[0].step, ElementsAre(1, 2, 3));
  EXPECT_DOUBLE_EQ(metrics[0].value[1], 0.7);
  EXPECT_TRUE(std::isnan(metrics[0].value[2]));
  EXPECT_EQ(metrics[1].name, "eval/loss");
}

TEST(ReadMetrics, NamesTheLineWithoutAStep) {
  const auto path = written("metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"loss\":1}\n");
  try {
    read_metrics(path);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl: line 2: no number \"step\""));
  }
}

}  // namespace
}  // namespace kullback
