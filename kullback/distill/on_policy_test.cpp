#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/train/check.h"

namespace kullback {
namespace {

struct Fixture {
  const char* method;
  size_t cases;
};

class OnPolicyFixture : public testing::TestWithParam<Fixture> {};

TEST_P(OnPolicyFixture, AgreesWithTheGoldenNumbers) {
  const CheckReport report = check_file(fmt::format("{}/{}.json", KULLBACK_FIXTURES, GetParam().method));
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << r.name << ": " << r.largest_difference << " at " << r.at;
  EXPECT_EQ(report.results.size(), GetParam().cases);
}

INSTANTIATE_TEST_SUITE_P(Methods, OnPolicyFixture,
                         testing::Values(Fixture{"gkd", 20}, Fixture{"distillm", 18}, Fixture{"minillm", 16},
                                         Fixture{"dpkd", 18}, Fixture{"skd", 17}, Fixture{"plad", 7}, Fixture{"uld", 7},
                                         Fixture{"reduced-vocab", 14}),
                         [](const auto& test) {
                           std::string name = test.param.method;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kullback
