#include "kullback/report/frontier.h"

#include <cmath>

#include <gmock/gmock.h>

namespace kullback {
namespace {

using ::testing::ElementsAre;

FrontierEntry at(double divergence, double reward) {
  return {.name = "", .divergence = {divergence}, .reward = {reward}};
}

TEST(Frontier, TheFrontIsWhatNothingBeats) {
  const std::vector<FrontierEntry> entries{at(0, 1), at(1, 3), at(1, 2),   at(2, 3),
                                           at(3, 5), at(1, 3), at(4, NAN), at(INFINITY, 9)};
  EXPECT_THAT(pareto_front(entries), ElementsAre(true, true, false, false, true, true, false, false));
  EXPECT_THAT(pareto_front(entries, Better::lower), ElementsAre(true, false, false, false, false, false, false, false));
  EXPECT_TRUE(pareto_front({}).empty());
}

TEST(Frontier, ThePlotHasItsStepsItsCurvesAndEachEntry) {
  std::vector<FrontierEntry> entries{at(2, 3), at(0, 1), at(3, 2)};
  entries[0].reward = {3, 2.5, 3.5};
  const Plot plot = frontier_plot(entries, {.title = "KL"}, {.title = "reward"}, {{"exact", {0, 1}, {1, 4}}}, true);
  ASSERT_EQ(plot.series.size(), 5U);
  EXPECT_EQ(plot.series[0].name, "exact");
  EXPECT_THAT(plot.series[1].x, ElementsAre(0, 2));
  EXPECT_THAT(plot.series[1].y, ElementsAre(1, 3));
  EXPECT_THAT(plot.series[2].low, ElementsAre(2.5));
  EXPECT_TRUE(plot.series[3].low.empty());
  EXPECT_FALSE(svg(plot).empty());
  EXPECT_EQ(frontier_plot(entries, {}, {}).series.size(), 3U);
}

}  // namespace
}  // namespace kullback
