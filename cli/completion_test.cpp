// Completion and the manual page: everything that help tells is in them, and shells take them.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/base/registry.h"

namespace kullback::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '-' ? std::string("\\-") : std::string(1, c);
  return result;
}

/// The words that bash offers after a line, by the script itself.
std::string offered(const std::string& script, const std::string& words, int at) {
  const std::string line = "bash -c 'source " + script + "; COMP_WORDS=(" + words +
                           "); COMP_CWORD=" + std::to_string(at) + "; _kullback; echo \" ${COMPREPLY[*]} \"' 2>&1";
  std::string out;
  FILE* pipe = popen(line.c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  return out;
}

TEST(Completion, EveryCommandAndOptionIsInTheScriptsAndTheManual) {
  const std::string bash = run_program("completion bash").out, zsh = run_program("completion zsh").out,
                    man = run_program("man").out;
  ASSERT_GT(command_names().size(), 15u);
  for (const std::string& command : command_names()) {
    EXPECT_THAT(man, HasSubstr(".SS kullback " + command));
    EXPECT_THAT(zsh, HasSubstr("    " + command + ")\n"));
    const size_t known = bash.find("      '" + command + "') known='--");
    ASSERT_NE(known, std::string::npos) << command;
    const std::string words = bash.substr(known, bash.find('\n', known) - known) + " ";
    const size_t section = man.find(".SS kullback " + command);
    const std::string manual = man.substr(section, man.find(".SS", section + 1) - section);
    for (const std::string& option : first_words(run_program(command + " --help").out, "--")) {
      EXPECT_TRUE(words.find(option + " ") != std::string::npos || words.find("'" + option + " ") != std::string::npos)
          << command << " " << option;
      EXPECT_THAT(zsh, HasSubstr("'" + option)) << command;
      const bool general = option == "--threads";  // said once in the manual
      EXPECT_THAT(general ? man : manual, HasSubstr("\\fB" + roff(option) + "\\fR")) << command;
    }
  }
}

TEST(Completion, BashOffersCommandsOptionsAndValues) {
  const auto folder = fresh_folder("completion");
  const std::string script = written(folder / "kullback.bash", run_program("completion bash").out);
  EXPECT_EQ(std::system(("bash -n " + script).c_str()), 0);
  EXPECT_EQ(offered(script, "kullback ali", 1), " align \n");
  EXPECT_EQ(offered(script, "kullback --threads 2 doc", 3), " doctor \n");
  EXPECT_EQ(offered(script, "kullback align --metho", 2), " --method \n");
  EXPECT_THAT(offered(script, "kullback align --method f", 3), HasSubstr(" f-dpo "));
  EXPECT_THAT(offered(script, "kullback distill --method = f", 4), Not(HasSubstr("f-dpo")));
  EXPECT_EQ(offered(script, "kullback measure --numbers log", 3), " logits \n");
  EXPECT_EQ(offered(script, "kullback measure --numbers = cou", 4), " counts \n");
  EXPECT_EQ(offered(script, "kullback align --data \"\"", 3), "  \n");  // files
  EXPECT_THAT(offered(script, "kullback explain kt", 2), HasSubstr(" kto "));
  EXPECT_THAT(offered(script, "kullback explain reny", 2), HasSubstr(" renyi "));
  EXPECT_EQ(run_program("completion fish").status, 2);
}

TEST(Completion, ZshTakesItsScriptAndTroffTheManual) {
  const auto folder = fresh_folder("completion-zsh");
  const std::string script = written(folder / "_kullback", run_program("completion zsh").out),
                    page = written(folder / "kullback.1", run_program("man").out);
  const auto has = [](const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
  };
  if (has("zsh")) {
    EXPECT_EQ(std::system(("zsh -n " + script).c_str()), 0);
  }
  if (has("groff")) {
    EXPECT_EQ(std::system(fmt::format("groff -man -Tutf8 -ww -Wbreak {0} >{0}.txt 2>{0}.err", page).c_str()), 0);
    EXPECT_EQ(contents(page + ".err"), "");
    EXPECT_THAT(contents(page + ".txt"), HasSubstr("kullback align"));
  }
  if (!has("zsh") && !has("groff")) GTEST_SKIP() << "neither zsh nor groff is installed";
}

}  // namespace
}  // namespace kullback::test
