// The token-level methods of distillation against their golden fixtures.
#include <gtest/gtest.h>

#include "kullback/train/check.h"

namespace kullback {
namespace {

struct Fixture {
  const char* method;
  size_t cases;
};
void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.method; }

class TokenLevel : public testing::TestWithParam<Fixture> {};

TEST_P(TokenLevel, GoldenFixture) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES) + "/" + GetParam().method + ".json");
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << r.name << ": " << r.largest_difference << " at " << r.at;
  EXPECT_EQ(report.results.size(), GetParam().cases);
}

INSTANTIATE_TEST_SUITE_P(Distillation, TokenLevel,
                         testing::Values(Fixture{"akl", 10}, Fixture{"atkd", 7}, Fixture{"self-evolution-kd", 11},
                                         Fixture{"pesf-kd", 8}, Fixture{"swing", 11}, Fixture{"sinkd", 12},
                                         Fixture{"moment-matching", 11}, Fixture{"dac-kl", 13}));

}  // namespace
}  // namespace kullback
