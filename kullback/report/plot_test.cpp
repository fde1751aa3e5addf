#include "kullback/report/plot.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/report/invented_run_test.h"
#include "kullback/report/look_test.h"
#include "kullback/report/markup_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

Plot line(std::vector<double> x, std::vector<double> y, const std::string& title = "line") {
  Plot plot{.title = title, .x = {.title = "Step"}, .y = {.title = "Loss", .unit = "nats"}};
  plot.series = {{.name = "a", .x = std::move(x), .y = std::move(y)}};
  return plot;
}

std::vector<double> counted(std::size_t n) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<double>(i);
  return values;
}

/// Everything that has troubled plotting programs, each with a name.
std::vector<Plot> gallery() {
  std::vector<Plot> plots{line({}, {}, "no points"),
                          line({3}, {0.25}, "one point"),
                          line({1, 2, 3, 4, 5, 6}, {1, nan, 2, 3, nan, 1}, "gaps"),
                          line({1, 2}, {nan, infinity}, "no finite value"),
                          line({1, 2, 3}, {0.693147, 0.693147, 0.693147}, "constant"),
                          line({1, 2, 3}, {0, 0, 0}, "zero"),
                          line({1, 2, 3}, {-1e308, 1e308, 0}, "huge"),
                          line({1, 2, 3}, {5e-324, 1e-310, 3e-308}, "denormal"),
                          line({1, 2, 3}, {1e-9, 3e-9, 2e-9}, "small"),
                          line({1e6, 2e6, 3e6}, {1e6, 1.2e6, 1.1e6}, "millions"),
                          line({1, 2, 3}, {1000000.1, 1000000.2, 1000000.3}, "far from zero"),
                          invented::frontier(),
                          invented::by_class(),
                          invented::by_position(),
                          invented::by_length()};
  Plot noise = line(counted(100'000), {}, "100 000 points, one of them high");
  for (int i = 0; i < 100'000; ++i)
    noise.series[0].y.push_back(std::sin(i * 0.001) + 0.3 * std::sin(i * 1.7) + (i == 54'321 ? 4 : 0));
  plots.push_back(noise);
  Plot cloud = line({}, {}, "a cloud of 100 000 points");
  cloud.series[0].mark = Mark::points;
  for (int i = 0; i < 100'000; ++i) {
    cloud.series[0].x.push_back(std::sin(i * 12.9898) * 3 + std::sin(i * 78.233));
    cloud.series[0].y.push_back(std::cos(i * 39.425) * 2 + std::sin(i * 7.1));
  }
  plots.push_back(cloud);
  Plot logarithmic = line(counted(50), {}, "logarithmic, with zeros");
  logarithmic.y.scale = Scale::logarithmic;
  for (int i = 0; i < 50; ++i) logarithmic.series[0].y.push_back(i % 10 == 5 ? 0 : std::pow(10, -i / 8.0));
  plots.push_back(logarithmic);
  Plot names{
      .title = "many long names", .x = {.title = "Method"}, .y = {.title = "Accuracy", .unit = "share of pairs"}};
  Series bars{.name = "", .mark = Mark::bars};
  for (int i = 0; i < 24; ++i) {
    names.x.categories.push_back("a-method-with-a-long-name-" + std::to_string(i));
    bars.x.push_back(i);
    bars.y.push_back(std::sin(i) * (i == 3 ? nan : 1));
    bars.low.push_back(bars.y.back() - 0.1);
    bars.high.push_back(bars.y.back() + 0.1);
  }
  names.series = {bars};
  plots.push_back(names);
  Plot many = line({}, {},
                   "more series than colours, and a title that is much too long for one line of a plot of this width, "
                   "and then for two");
  many.series.clear();
  for (int s = 0; s < 14; ++s)
    many.series.push_back(
        {.name = "series number " + std::to_string(s), .x = {0, 1, 2}, .y = {s * 1.0, s * 1.3, s * 1.1}});
  plots.push_back(many);
  return plots;
}

TEST(Plot, EverythingInTheGalleryIsWellFormedAndSmall) {
  std::string page = "<!DOCTYPE html>\n<html><body>";
  for (const Plot& plot : gallery()) {
    for (const PlotSize size : {PlotSize{}, PlotSize{360, 320}, PlotSize{1, 1}}) {
      const std::string image = svg(plot, size);
      EXPECT_EQ(markup_fault(image), "") << plot.title;
      EXPECT_LT(image.size(), 160'000U) << plot.title;
      EXPECT_THAT(image, Not(HasSubstr("nan"))) << plot.title;
      EXPECT_THAT(image, Not(HasSubstr("inf\""))) << plot.title;
      if (size.width > 100) page += image;
    }
    EXPECT_NO_THROW(plot_data(plot).dump());
  }
  std::ofstream(look_folder("gallery") / "gallery.html") << page << "</body></html>\n";
}

TEST(Plot, SaysWhenThereIsNoData) {
  EXPECT_THAT(svg(line({}, {})), HasSubstr("no data"));
  EXPECT_THAT(svg(line({1, 2}, {nan, nan})), HasSubstr("no data"));
  EXPECT_THAT(svg(Plot{}), HasSubstr("no data"));
  EXPECT_THAT(svg(line({1}, {1})), Not(HasSubstr("no data")));
}

TEST(Plot, APointBetweenGapsIsSeen) {
  const std::string image = svg(line({1, 2, 3, 4, 5}, {nan, 1, nan, nan, 2}));
  EXPECT_EQ(count_of(image, "<circle"), 2U);
}

TEST(Plot, ShowsValuesIntervalsAndLabelsOnHover) {
  Plot plot = line({1, 2}, {0.5, 0.25});
  plot.series[0].low = {0.4, 0.2};
  plot.series[0].high = {0.6, 0.3};
  plot.series[0].labels = {"first", ""};
  const std::string image = svg(plot);
  EXPECT_THAT(image, HasSubstr("<title>a, first\nStep: 1\nLoss: 0.5 [0.4, 0.6] nats</title>"));
}

TEST(Plot, WritesTitlesUnitsAndReferences) {
  Plot plot = line({1, 2}, {0.5, 0.25});
  plot.references = {{ReferenceLine::Direction::horizontal, 2, "chance <50%>"}};
  const std::string image = svg(plot);
  EXPECT_THAT(image, HasSubstr(">Loss (nats)<"));
  EXPECT_THAT(image, HasSubstr(">Step<"));
  EXPECT_THAT(image, HasSubstr("chance &lt;50%&gt;"));
  EXPECT_THAT(image, HasSubstr(">2.0<"));  // the axis reaches the reference
}

TEST(Plot, StandsAlone) {
  const std::string image = svg(invented::frontier());
  EXPECT_THAT(image, testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(image, HasSubstr("fill=\"#fff\""));
  EXPECT_THAT(image, Not(HasSubstr("var(")));
}

TEST(Plot, ZeroIsNoValueOnALogarithmicAxis) {
  Plot plot = line({1, 2, 3}, {0, 1, 100});
  plot.y.scale = Scale::logarithmic;
  const std::string image = svg(plot);
  EXPECT_EQ(count_of(image, "<circle"), 2U);
}

TEST(Plot, BarsStandOnZero) {
  Plot plot{.title = "bars", .x = {.categories = {"a", "b"}}};
  plot.series = {{.name = "x", .mark = Mark::bars, .x = {0, 1}, .y = {10, 11}}};
  EXPECT_THAT(svg(plot), HasSubstr(">0<"));
}

TEST(Plot, ColumnsOfDifferentLengthAreRefused) {
  Plot plot = line({1, 2}, {1});
  EXPECT_THROW(svg(plot), std::invalid_argument);
  EXPECT_THROW(plot_data(plot), std::invalid_argument);
  plot = line({1, 2}, {1, 2});
  plot.series[0].low = {1, 2};
  EXPECT_THROW(svg(plot), std::invalid_argument);
}

TEST(PlotData, KeepsShortSeriesAndThinsLongOnes) {
  Plot plot = line({1, 2, 3}, {1.5, nan, 2.5});
  Json data = plot_data(plot);
  EXPECT_EQ(data["series"][0]["y"].dump(), "[1.5,null,2.5]");
  EXPECT_FALSE(data["series"][0].contains("thinned_from"));
  plot = line(counted(100'000), std::vector<double>(100'000, 1.0));
  plot.series[0].y[777] = 9;
  data = plot_data(plot, 1000);
  EXPECT_EQ(data["series"][0]["thinned_from"], 100'000);
  EXPECT_LE(data["series"][0]["x"].size(), 1000U);
  EXPECT_THAT(data["series"][0]["y"].dump(), HasSubstr("9.0"));
}

}  // namespace
}  // namespace kullback
