// What every command owes to a shell: --json, --quiet, colours only where they are wanted, exit statuses that are documented.
#include <gmock/gmock.h>

#include <sstream>

#include "cli/run_program_test.h"
#include "kullback/base/json.h"

namespace kullback::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Shell, EveryCommandHasJsonAndQuietOrSaysWhyNot) {
  const std::vector<std::string> all = command_names();
  ASSERT_GT(all.size(), 18U);
  for (const std::string& command : all) {
    const Outcome help = run_program(command + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, AnyOf(HasSubstr("\n  --json "), HasSubstr("No --json: "))) << command;
    EXPECT_THAT(help.out, HasSubstr("--quiet")) << command;
    EXPECT_EQ(help.error, "") << command;
  }
}

TEST(Shell, WhatTakesNoModelPrintsJsonThatParses) {
  for (const char* line : {"methods --json", "explain dpo --json", "claim --list --json", "world --frontier 3 --json",
                           "check " KULLBACK_FIXTURES "/dpo.json --json"}) {
    const Outcome outcome = run_program(line);
    EXPECT_EQ(outcome.status, 0) << line << outcome.error;
    EXPECT_FALSE(Json::parse(outcome.out, nullptr, false).is_discarded()) << line << "\n" << outcome.out;
  }
}

TEST(Shell, ExitStatusesAreDocumented) {
  for (const char* text : {"0 success", "1 a check", "2 bad input", "3 a fault", "130"})
    EXPECT_THAT(run_program("--help").out, HasSubstr(text));
  const std::string manual = run_program("man").out;
  for (const char* status : {"\n0\n", "\n1\n", "\n2\n", "\n3\n", "\n130\n"}) EXPECT_THAT(manual, HasSubstr(status));
}

/// What the program writes to a terminal, by script(1) of util-linux.
std::string on_terminal(const std::string& before, const std::string& arguments) {
  const std::string line = fmt::format("TERM=xterm script -qec \"{} '{}' {}\" /dev/null </dev/null 2>&1", before,
                                       KULLBACK_PROGRAM, arguments);
  std::string out;
  FILE* pipe = popen(line.c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  return out;
}

TEST(Shell, ColoursAreForTerminalsAlone) {
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "script(1) is not installed";
  const std::string escape = "\x1b[";
  EXPECT_THAT(on_terminal("", "doctor"), AllOf(HasSubstr("passes"), HasSubstr(escape)));
  EXPECT_THAT(on_terminal("NO_COLOR=1", "doctor"), AllOf(HasSubstr("passes"), Not(HasSubstr(escape))));
  EXPECT_THAT(on_terminal("NO_COLOR=", "doctor"), HasSubstr(escape));
  EXPECT_THAT(on_terminal("TERM=dumb", "doctor"), Not(HasSubstr(escape)));
  EXPECT_THAT(run_program("doctor").out, AllOf(HasSubstr("passes"), Not(HasSubstr(escape))));
}

}  // namespace
}  // namespace kullback::test
