#include "kullback/measure/laws.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"

namespace kullback {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Laws : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string p(const std::string& json) const { return file("p.json", json); }
  std::string q(const std::string& json) const { return file("q.json", json); }

  double kl(const std::vector<std::string>& files, NumbersAs as = NumbersAs::probabilities,
            double smoothing = 0) const {
    return measure(read_laws(files, as), {"kl"}, as, smoothing)[0].value;
  }
  std::string refused(const std::vector<std::string>& files, NumbersAs as = NumbersAs::probabilities,
                      const std::string& name = "kl") const {
    try {
      measure(read_laws(files, as), {name}, as);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("kullback-laws-" + std::to_string(getpid()));
};

const double kExpected = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3);  // KL of (1/2, 1/2) from (1/4, 3/4)

TEST_F(Laws, AreReadFromJson) {
  EXPECT_NEAR(kl({p("[0.5, 0.5]"), q("[0.25, 0.75]")}), kExpected, 1e-15);
  EXPECT_NEAR(kl({file("both.json", R"({"p": [0.5, 0.5], "q": [0.25, 0.75]})")}), kExpected, 1e-15);
  EXPECT_NEAR(kl({p("[2, 2]"), q("[1, 3]")}, NumbersAs::counts), kExpected, 1e-15);
  EXPECT_NEAR(kl({p("[7, 7]"), q("[0, 1.0986122886681098]")}, NumbersAs::logits), kExpected, 1e-15);
  EXPECT_EQ(kl({p("[0, 0]"), q("[0, \"-inf\"]")}, NumbersAs::logits), kInfinity);
}

TEST_F(Laws, OutcomesWithNamesAreMatched) {
  EXPECT_NEAR(kl({p(R"({"yes": 0.5, "no": 0.5})"), q(R"({"no": 0.75, "yes": 0.25})")}), kExpected, 1e-15);
  EXPECT_EQ(kl({p(R"({"yes": 0.5, "no": 0.5})"), q(R"({"no": 1})")}), kInfinity);
  EXPECT_NEAR(kl({p(R"({"no": 1})"), q(R"({"yes": 0.5, "no": 0.5})")}), std::log(2.0), 1e-15);
  EXPECT_NEAR(kl({p(R"({"no": 0})"), q(R"({"yes": 0, "no": 0})")}, NumbersAs::logits), std::log(2.0), 1e-15);
  EXPECT_NEAR(kl({p(R"({"a": 1})"), q(R"({"b": 1})")}, NumbersAs::counts, 1), std::log(2.0) / 3, 1e-15);
}

TEST_F(Laws, AreReadFromCsv) {
  EXPECT_NEAR(kl({file("p.csv", "0.5\n0.5\n"), file("q.csv", "0.25\r\n0.75\r\n")}), kExpected, 1e-15);
  EXPECT_NEAR(kl({file("p.csv", "outcome,share\nyes,0.5\nno,0.5\n"), file("q.csv", "no,0.75\nyes,0.25")}), kExpected,
              1e-15);
  EXPECT_NEAR(kl({file("both.csv", "word,p,q\n\"a, b\",0.5,0.25\nc, 0.5 ,0.75\n")}), kExpected, 1e-15);
  EXPECT_NEAR(kl({file("p.csv", "2\n2\n"), q("[1, 3]")}, NumbersAs::counts), kExpected, 1e-15);
}

TEST_F(Laws, GaussiansAndDirichlets) {
  const std::string g = R"({"mean": [1, 0], "variance": [1, 1]})";
  EXPECT_NEAR(kl({p(g), q(R"({"mean": [0, 0], "covariance": [[1, 0], [0, 1]]})")}), 0.5, 1e-15);
  EXPECT_NEAR(kl({p(R"({"mean": 1, "variance": 1})"), q(R"({"mean": 0, "variance": 1})")}), 0.5, 1e-15);
  EXPECT_NEAR(kl({p(R"({"concentration": [1, 1]})"), q(R"({"concentration": [1, 1]})")}), 0, 1e-15);
  const auto all = measure(read_laws({p(g), q(g)}, NumbersAs::probabilities), {"all"}, NumbersAs::probabilities);
  EXPECT_GE(all.size(), 14u);
  EXPECT_EQ(all.back().name, "wasserstein-2");
  for (const Measured& m : all) EXPECT_NEAR(m.value, 0, 1e-12) << m.name;
}

TEST_F(Laws, AllIsEveryDivergenceThereIs) {
  const auto all = measure(read_laws({p("[0.5, 0.5]"), q("[0.25, 0.75]")}, NumbersAs::probabilities), {"all"},
                           NumbersAs::probabilities);
  ASSERT_EQ(all.size(), known_divergences().size());
  for (const Measured& m : all) EXPECT_GT(m.value, 0) << m.name;
}

TEST_F(Laws, BadOnesAreNamed) {
  const std::string good = q("[0.25, 0.75]");
  EXPECT_THAT(refused({p("[0.5, 0.6]"), good}), HasSubstr("the first law: the probabilities sum to 1.1"));
  EXPECT_THAT(refused({good, p("[1.5, -0.5]")}), HasSubstr("the second law: probability 2 is -0.5"));
  EXPECT_THAT(refused({p("[1]"), good}), HasSubstr("1 outcomes and the second 2"));
  EXPECT_THAT(refused({p("[-1, 2]"), good}, NumbersAs::counts), HasSubstr("count 1 is -1"));
  EXPECT_THAT(refused({p("[0, 0]"), good}, NumbersAs::counts), HasSubstr("counts nothing"));
  EXPECT_THAT(refused({p("[0.5, \"x\"]"), good}), AllOf(HasSubstr("p.json[1]"), HasSubstr("not a number")));
  EXPECT_THAT(refused({p("{\"a\": 1}"), good}), HasSubstr("names"));
  EXPECT_THAT(refused({p("[0.5,"), good}), HasSubstr("p.json"));
  EXPECT_THAT(refused({p("{}"), good}), AllOf(HasSubstr("p.json"), HasSubstr("no outcomes")));
  EXPECT_THAT(refused({good}), HasSubstr("both laws"));
  EXPECT_THAT(refused({file("none.json", ""), good}), HasSubstr("none.json"));
  EXPECT_THAT(refused({(std::filesystem::temp_directory_path() / "kullback-no-such.json").string(), good}),
              HasSubstr("kullback-no-such.json"));
  EXPECT_THAT(refused({p("[0.5, 0.5]"), good}, NumbersAs::probabilities, "kll"), HasSubstr("did you mean \"kl\""));
  EXPECT_THAT(refused({p("[0.5, 0.5]"), good}, NumbersAs::probabilities, "js:2"), HasSubstr("must be in (0, 1)"));
  EXPECT_THAT(refused({p(R"({"mean": [0]})"), q(R"({"mean": [0], "variance": [1]})")}), HasSubstr("\"variance\""));
  EXPECT_THAT(refused({p(R"({"mean": [0, 1], "covariance": [[1, 0]]})"), q(R"({"mean": [0], "variance": [1]})")}),
              HasSubstr("p.json: covariance"));
  EXPECT_THAT(refused({p("[1]"), q(R"({"mean": [0], "variance": [1]})")}), HasSubstr("different kinds"));
  EXPECT_THAT(
      refused({p(R"({"concentration": [-1]})"), q(R"({"concentration": [1]})")}, NumbersAs::probabilities, "all"),
      HasSubstr("concentration 1 is -1"));
}

TEST_F(Laws, BadCsvLinesAreNumbered) {
  const std::string good = q("[0.25, 0.75]");
  EXPECT_THAT(refused({file("p.csv", "0.5\n0.x\n"), good}), AllOf(HasSubstr("p.csv: line 2"), HasSubstr("0.x")));
  EXPECT_THAT(refused({file("p.csv", "a,0.5\n0.5\n"), good}), HasSubstr("p.csv: line 2: 1 fields"));
  EXPECT_THAT(refused({file("p.csv", "a,b,0.5\n"), good}), HasSubstr("line 1: 3 fields"));
  EXPECT_THAT(refused({file("p.csv", "name,p\n"), good}), HasSubstr("no outcomes"));
  EXPECT_THAT(refused({file("p.csv", "a,0.5\na,0.5\n"), file("q.csv", "a,1\n")}), HasSubstr("\"a\" stands twice"));
}

TEST_F(Laws, SmoothingBelongsToCounts) {
  const PairOfLaws laws = read_laws({p("[0.5, 0.5]"), q("[0.25, 0.75]")}, NumbersAs::probabilities);
  EXPECT_THROW(measure(laws, {"kl"}, NumbersAs::probabilities, 1), Error);
}

}  // namespace
}  // namespace kullback
