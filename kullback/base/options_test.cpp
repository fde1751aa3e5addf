#include "kullback/base/options.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/command.h"
#include "kullback/base/error.h"
#include "kullback/base/registry.h"

namespace kullback {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

enum class Colour { red, deep_blue };
struct Sample {
  double beta = 0.1;
  int64_t steps = 5;
  bool fast = false;
  std::string name = "none";
  Colour colour = Colour::red;
  std::vector<Colour> colours{Colour::red};
  std::optional<double> cap;
  std::vector<double> weights{1, 2};
};

const Options<Sample>& sample_options() {
  static const auto options =
      Options<Sample>()
          .option("beta", &Sample::beta, positive, "strength", "paper")
          .option("max-steps", &Sample::steps, at_least(1), "steps")
          .option("fast", &Sample::fast, "be quick")
          .option("name", &Sample::name, "a name")
          .option("colour", &Sample::colour, {{"red", Colour::red}, {"deep_blue", Colour::deep_blue}}, "a colour")
          .option("colours", &Sample::colours, {{"red", Colour::red}, {"deep_blue", Colour::deep_blue}}, "colours")
          .option("cap", &Sample::cap, fraction, "a cap")
          .option("weights", &Sample::weights, any_number, "weights");
  return options;
}

Sample parsed(const std::vector<std::string>& arguments) {
  Sample sample;
  Command command("try", "a command");
  command.options("Sample", sample_options(), &sample);
  EXPECT_TRUE(command.parse(arguments));
  return sample;
}

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parsed(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string temporary_file(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::path(::testing::TempDir()) / name;
  std::ofstream(path) << text;
  return path.string();
}

TEST(Options, KeepTheirDefaults) {
  const Sample s = parsed({});
  EXPECT_EQ(s.beta, 0.1);
  EXPECT_EQ(s.steps, 5);
  EXPECT_FALSE(s.cap.has_value());
}

TEST(Options, AreReadFromTheCommandLine) {
  const Sample s = parsed({"--beta", "0.25", "--max_steps=7", "--fast", "--colour", "deep-blue", "--colours",
                           "red,deep_blue", "--cap=0.5", "--weights", "1e-3,-2,3", "--name", "a b"});
  EXPECT_EQ(s.beta, 0.25);
  EXPECT_EQ(s.steps, 7);
  EXPECT_TRUE(s.fast);
  EXPECT_EQ(s.colour, Colour::deep_blue);
  EXPECT_EQ(s.colours, (std::vector{Colour::red, Colour::deep_blue}));
  EXPECT_EQ(s.cap, 0.5);
  EXPECT_EQ(s.weights, (std::vector<double>{1e-3, -2, 3}));
  EXPECT_EQ(s.name, "a b");
}

TEST(Options, SwitchesAndOff) {
  EXPECT_FALSE(parsed({"--fast", "--no-fast"}).fast);
  EXPECT_FALSE(parsed({"--cap", "0.5", "--cap", "off"}).cap.has_value());
}

TEST(Options, BadValuesNameTheOptionAndTheRange) {
  EXPECT_THAT(error_of({"--beta", "0"}), AllOf(HasSubstr("--beta"), HasSubstr("> 0")));
  EXPECT_THAT(error_of({"--beta", "nan"}), HasSubstr("--beta"));
  EXPECT_THAT(error_of({"--beta", "0.1x"}), HasSubstr("not a number"));
  EXPECT_THAT(error_of({"--max-steps", "1.5"}), HasSubstr("whole number"));
  EXPECT_THAT(error_of({"--max-steps", "99999999999999999999"}), HasSubstr("--max-steps"));
  EXPECT_THAT(error_of({"--colour", "deep_bleu"}), AllOf(HasSubstr("did you mean"), HasSubstr("deep_blue")));
  EXPECT_THAT(error_of({"--cap", "2"}), AllOf(HasSubstr("[0, 1]"), HasSubstr("off")));
  EXPECT_THAT(error_of({"--beta"}), HasSubstr("--beta"));
}

TEST(Options, UnknownNamesComeWithASuggestion) {
  EXPECT_THAT(error_of({"--bata", "1"}), AllOf(HasSubstr("--bata"), HasSubstr("did you mean \"beta\"")));
  EXPECT_THAT(error_of({"stray"}), HasSubstr("stray"));
}

TEST(Options, TomlRoundTripReproducesEveryValue) {
  Sample sample{.beta = 0.30000000000000004,
                .steps = 12,
                .fast = true,
                .name = "quote \" and \\ and \xc3\xa9",
                .colour = Colour::deep_blue,
                .colours = {Colour::deep_blue, Colour::red},
                .cap = 1,
                .weights = {0.1, 1e300, -7}};
  Command command("try", "a command");
  command.options("Sample options", sample_options(), &sample);
  const Sample again = parsed(
      {"--config",
       temporary_file("round.toml", command.toml().replace(command.toml().find("[sample-options]"), 16, "[sample]"))});
  EXPECT_EQ(sample_options().values(&again), sample_options().values(&sample));
}

TEST(Options, FlagsOverrideTheFile) {
  const std::string file = temporary_file("override.toml", "beta = 0.5\n[sample]\nmax_steps = 9\n");
  EXPECT_EQ(parsed({"--config", file}).steps, 9);
  EXPECT_EQ(parsed({"--beta", "2", "--config", file}).beta, 2);
}

TEST(Options, FilesAreCheckedLikeFlags) {
  EXPECT_THAT(error_of({"--config", temporary_file("range.toml", "beta = -1\n")}),
              AllOf(HasSubstr("range.toml"), HasSubstr("--beta")));
  EXPECT_THAT(error_of({"--config", temporary_file("unknown.toml", "bete = 1\n")}), HasSubstr("did you mean \"beta\""));
  EXPECT_THAT(error_of({"--config", temporary_file("section.toml", "[samples]\nbeta = 1\n")}),
              HasSubstr("did you mean \"sample\""));
  EXPECT_THAT(error_of({"--config", temporary_file("syntax.toml", "beta = 1\nfast = = 2\n")}), HasSubstr("line 2"));
  EXPECT_THAT(error_of({"--config", temporary_file("type.toml", "beta = \"much\"\n")}), HasSubstr("not a number"));
  EXPECT_THAT(error_of({"--config", temporary_file("date.toml", "name = 2026-11-30\n")}), HasSubstr("no error"));
  EXPECT_THAT(error_of({"--config", "nowhere.toml"}), HasSubstr("nowhere.toml"));
}

TEST(Options, HelpShowsRangeDefaultAndSource) {
  Sample sample;
  Command command("try", "a command", "Long text.");
  command.options("Sample", sample_options(), &sample).example("kullback try --beta 1");
  EXPECT_THAT(command.help(), AllOf(HasSubstr("--beta VALUE"), HasSubstr("number > 0; default 0.1, paper"),
                                    HasSubstr("kullback try --beta 1")));
  EXPECT_THAT(command.page(), HasSubstr("| `--cap` | number in [0, 1], or off | off | a cap |"));
}

TEST(Options, TwoOfOneNameAreAFaultOfOurs) {
  Sample a, b;
  Command command("try", "a command");
  command.options("A", sample_options(), &a);
  EXPECT_THROW(command.options("B", sample_options(), &b), std::logic_error);
}

TEST(Command, PeeksThroughTheFile) {
  const std::string file = temporary_file("peek.toml", "[run]\nmethod = \"tdpo\"\n");
  EXPECT_EQ(Command::peek({"--config", file}, "method"), "tdpo");
  EXPECT_EQ(Command::peek({"--config", file, "--method=ipo"}, "method"), "ipo");
  EXPECT_EQ(Command::peek({}, "method"), std::nullopt);
}

TEST(Registry, UnknownMethodsComeWithASuggestion) {
  static const Registered registered{Method{.name = "sample-method",
                                            .summary = "for this test",
                                            .formula = "",
                                            .when = "",
                                            .papers = {},
                                            .needs = {},
                                            .options = nullptr,
                                            .recipe = {}}};
  try {
    find_method("sample-methd");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"sample-method\""));
  }
  EXPECT_THROW(find_method("sample-method", Family::distillation), Error);
  EXPECT_THAT(explain(find_method("sample-method")), HasSubstr("for this test"));
}

}  // namespace
}  // namespace kullback
