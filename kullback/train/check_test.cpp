#include "kullback/train/check.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/base/json.h"

namespace kullback {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

Json sample_case() {
  return Json::parse(R"({"name": "one", "tolerance": 1e-6, "inputs": {"x": {"shape": [2], "data": [1.5, 2.5]}},
                         "expected": {"loss": 8.5, "grad_x": {"shape": [2], "data": [3.0, 5.0]}}})");
}

CheckResult checked(const Json& json) {
  CheckCase one(json, "file.json");
  const Tensor x = one.tensor("x");
  return compare(one, {{"loss", x.square().sum()}});
}

TEST(Check, ComparesOutputsAndTheirGradients) {
  EXPECT_TRUE(checked(sample_case()).passed);
  Json wrong = sample_case();
  wrong["expected"]["grad_x"]["data"][1] = 5.001;
  const CheckResult result = checked(wrong);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.at, "grad_x[1]");
  EXPECT_NEAR(result.largest_difference, 0.001 / 5.001, 1e-12);
}

TEST(Check, MissingOutputsShapesAndNanFail) {
  Json missing = sample_case();
  missing["expected"]["margin"] = 1.0;
  EXPECT_THAT(checked(missing).at, HasSubstr("margin"));
  Json shape = sample_case();
  shape["expected"]["loss"] = Json::array({8.5, 8.5});
  EXPECT_FALSE(checked(shape).passed);
  Json nan = sample_case();
  nan["expected"]["loss"] = "nan";
  EXPECT_FALSE(checked(nan).passed);
}

TEST(Check, BadFixturesAreErrors) {
  Json ragged = sample_case();
  ragged["inputs"]["x"]["shape"] = Json::array({3});
  EXPECT_THROW(checked(ragged), Error);
  Json text = sample_case();
  text["inputs"]["x"]["data"][0] = "much";
  EXPECT_THROW(checked(text), Error);
  Json tolerance = sample_case();
  tolerance.erase("tolerance");
  EXPECT_THROW(checked(tolerance), Error);
  EXPECT_THROW(check_file("nowhere.json"), Error);
}

void expect_passes(const std::string& file) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES "/") + file);
  EXPECT_FALSE(report.results.empty());
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << file << ", " << r.name << ": " << r.largest_difference << " at " << r.at;
}

TEST(Check, TokenizersBesideTheirFixtures) {
  for (const char* kind : {"gpt2", "llama2", "bert", "unigram"})
    expect_passes(std::string("tokenizers/") + kind + "/goldens.json");
}

TEST(SlowCheck, SmolLm2Tokenizer) { expect_passes("smollm2/tokenizer.json"); }
TEST(SlowCheck, SmolLm2LogProbabilities) { expect_passes("smollm2/logits.json"); }

}  // namespace
}  // namespace kullback
