#include "kullback/measure/divergence_guide.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"

namespace kullback {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(DivergenceGuide, FactsAreTheClosedForms) {
  const DivergenceGuide kl = divergence_guide("kl"), js = divergence_guide("js"), tv = divergence_guide("tv");
  EXPECT_EQ(kl.forgotten, kInfinity);
  EXPECT_NEAR(kl.invented, std::log(2), 1e-15);
  EXPECT_FALSE(kl.symmetric);
  EXPECT_NEAR(kl.near, 0.5, 1e-3);  // f''(1) / 2
  EXPECT_NEAR(js.disjoint, std::log(2), 1e-15);
  EXPECT_NEAR(js.near, 0.125, 1e-3);
  EXPECT_TRUE(js.symmetric);
  EXPECT_FALSE(divergence_guide("js:0.3").symmetric);
  EXPECT_NEAR(divergence_guide("chi2").near, 1, 1e-12);
  EXPECT_EQ(tv.disjoint, 1);
  EXPECT_NEAR(tv.forgotten, 0.5, 1e-15);
}

double moment(const std::vector<double>& law, int order) {
  double sum = 0;
  for (size_t i = 0; i < law.size(); ++i) sum += law[i] * std::pow(i, order);
  return sum;
}

// The student is an exponential family of x and x^2, so that forward KL's best has the teacher's mean of both.
TEST(DivergenceGuide, ForwardKlCoversBothModesAndReverseKlTakesTheHeavierOne) {
  const DivergenceGuide kl = divergence_guide("kl"), reverse = divergence_guide("reverse-kl");
  EXPECT_NEAR(moment(kl.covering.law, 1), moment(kl.teacher, 1), 0.15);  // the grid's step
  EXPECT_NEAR(moment(kl.covering.law, 2), moment(kl.teacher, 2), 0.015 * moment(kl.teacher, 2));
  EXPECT_NEAR(kl.seeking.mean, 11, 0.3);
  EXPECT_NEAR(kl.seeking.deviation, 3, 0.2);
  EXPECT_EQ(reverse.covering.mean, kl.seeking.mean);
  EXPECT_EQ(reverse.seeking.deviation, kl.covering.deviation);
}

TEST(DivergenceGuide, EveryDivergenceHasAPageAndAPicture) {
  for (const DivergenceInfo& info : known_divergences()) {
    SCOPED_TRACE(info.name);
    const DivergenceGuide guide = divergence_guide(info.name);
    EXPECT_GT(guide.when.size(), 40U);
    EXPECT_THAT(explain(guide), HasSubstr(info.summary));
    EXPECT_EQ(guide_json(guide).at("name"), guide.divergence.name());
    EXPECT_GE(landing_plot(guide).series.size(), 2U) << "no student has a finite divergence in either direction";
    for (const std::string& alias : info.aliases) EXPECT_TRUE(names_divergence(alias)) << alias;
  }
  EXPECT_TRUE(names_divergence("js:0.3"));
  EXPECT_FALSE(names_divergence("dpo"));
  EXPECT_THROW(divergence_guide("jss"), Error);
}

}  // namespace
}  // namespace kullback
