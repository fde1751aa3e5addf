// Every command that the documentation shows, run as it stands there, on models small enough for it: the pages of docs/ and the
// README, and the examples in each command's own help.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/lm/save_gguf.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;

/// The commands in a page's code blocks: lines that begin with the program's name, continued ones joined.
std::vector<std::string> commands_of_page(const fs::path& page) {
  std::vector<std::string> commands;
  std::istringstream lines(std::regex_replace(contents(page), std::regex(R"(\\\n\s*)"), ""));
  bool block = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) block = !block;
    if (block && line.starts_with("build/")) line = line.substr(6);
    if (block && line.starts_with("kullback ")) commands.push_back(line);
  }
  return commands;
}

std::vector<std::string> examples_of_help(const std::string& command) {
  std::vector<std::string> examples;
  const std::string help = run_program(command + " --help").out;
  for (size_t at = help.find("\nExamples:\n"); at != std::string::npos; at = help.find("\nExamples:\n", at + 1)) {
    std::istringstream lines(help.substr(at + 11));
    for (std::string line; std::getline(lines, line) && line.starts_with("  ");) {
      if (line.starts_with("  kullback ")) examples.push_back(line.substr(2));
    }
  }
  return examples;
}

/// The word after an option.
std::string value_of(const std::string& command, const std::string& option) {
  std::smatch found;
  return std::regex_search(command, found, std::regex(option + "[ =]([^ ]+)")) ? found[1].str() : "";
}

/// A folder in which all that the documentation names is there: models, data, runs, and the program on the path.
class Documentation : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder("docs");
    for (const char* made : {"bin", ".zfunc"}) fs::create_directories(folder_ / made);
    fs::create_directories(folder_ / "cache/models");
    fs::create_symlink(KULLBACK_PROGRAM, folder_ / "bin/kullback");
    for (const char* there : {"data", "fixtures"})
      fs::create_directory_symlink(fs::path(KULLBACK_SOURCE) / there, folder_ / there);
    for (const char* name : {"my-model", "before", "after", "big", "small", "first", "second"})
      save_model(tiny_model(std::hash<std::string>{}(name) % 7), folder_ / name);
    save_gguf(tiny_model(), folder_ / "cache/models/smollm2-135m-instruct.gguf", GgmlType::f32);
    tiny_pairs(folder_ / "pairs.jsonl", 20), tiny_pairs(folder_ / "heldout.jsonl", 6);
    std::string rows;
    for (int i = 0; i < 20; ++i) rows += fmt::format("{{\"prompt\": \"Q{}\", \"completion\": \"Answer {}\"}}\n", i, i);
    for (const char* name : {"rows.jsonl", "instructions.jsonl", "heldout-rows.jsonl", "questions.jsonl"})
      written(folder_ / name, rows);
    written(folder_ / "p.json", "[0.5, 0.5]"), written(folder_ / "q.json", "[0.25, 0.75]");
    written(folder_ / "tables.csv", "a,3,1\nb,2,5\n");
    written(folder_ / "gaussians.json",
            R"({"p": {"mean": [0], "variance": [1]}, "q": {"mean": [1], "variance": [2]}})");
    written(folder_ / "plan.toml",
            "command = \"align\"\noutput = \"runs/grid\"\n[options]\nmodel = \"my-model\"\ndata = \"pairs.jsonl\"\n"
            "max-steps = 1\nsamples = 0\n[grid]\nmethod = [\"dpo\", \"ln-dpo\"]\nbeta = [0.1, 0.2]\n");
    written(folder_ / "judge.py", contents(fs::path(KULLBACK_SOURCE) / "examples/judge.py"));
  }
  void TearDown() override { fs::remove_all(folder_); }

  int shell(const std::string& line) {
    const std::string whole = fmt::format(
        "cd '{0}' && export HOME='{0}' PATH='{0}/bin':\"$PATH\" KULLBACK_CACHE='{0}/cache' && {{ {1} ; }} >out 2>err "
        "</dev/null",
        folder_.string(), line);
    const int status = std::system(whole.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// Makes the runs, comparisons and files that a command reads and no command before it has made.
  void prepare(const std::string& command) {
    const auto train = [&](const std::string& run) {
      if (fs::exists(folder_ / run / "report.html")) return;
      fs::remove_all(folder_ / run);
      ASSERT_EQ(shell("kullback align --quiet --model smollm2-135m-instruct --data pairs.jsonl --max-steps 2 --samples "
                      "0 --output " +
                      run),
                0);
    };
    static const std::regex named(R"((runs/[a-z-]+))");
    const std::string resumed = value_of(command, "--resume"), output = value_of(command, "--output");
    if (!output.empty()) fs::remove_all(folder_ / output);
    for (std::sregex_iterator run(command.begin(), command.end(), named), end; run != end; ++run) {
      const std::string name = (*run)[1].str();
      if (name == output || name == resumed) continue;
      if (name == "runs/compared") {
        if (!fs::exists(folder_ / name)) {
          ASSERT_EQ(shell("kullback align --quiet --method dpo,kto --model smollm2-135m-instruct --data pairs.jsonl "
                          "--max-steps 2 --samples 0 --output " +
                          name),
                    0);
        }
      } else {
        train(name);
      }
    }
    if (!resumed.empty()) interrupt(command, resumed);
    if (command.find("inspect rows.teacher") != std::string::npos ||
        command.find("rows.teacher --student") != std::string::npos) {
      if (!fs::exists(folder_ / "rows.teacher")) {
        ASSERT_EQ(shell("kullback teacher record --quiet --teacher smollm2-135m-instruct --data rows.jsonl --output "
                        "rows.teacher"),
                  0);
      }
    } else if (output == "rows.teacher") {
      fs::remove(folder_ / "rows.teacher.json");
    }
    if (command.find("--autoencoder features.safetensors") != std::string::npos &&
        !fs::exists(folder_ / "features.safetensors")) {
      ASSERT_EQ(shell("kullback autoencoder --quiet --model smollm2-135m-instruct --data pairs.jsonl --features 64 "
                      "--steps 20 --output features.safetensors"),
                0);
    }
    if (command.find("convert smollm2-folder") != std::string::npos && !fs::exists(folder_ / "smollm2-folder")) {
      ASSERT_EQ(shell("kullback convert smollm2-135m-instruct smollm2-folder"), 0);
    }
    for (const char* made : {"smollm2-folder --type", "smollm2.gguf"}) {
      if (command.find(made) != std::string::npos && command.find("smollm2-folder smollm2") == std::string::npos)
        fs::remove_all(folder_ / "smollm2-folder");
    }
    fs::create_directories(folder_ / "worlds");
  }

  /// A run of the command in that folder which has not come to its end.
  void interrupt(const std::string& command, const std::string& run) {
    if (!fs::exists(folder_ / run)) {
      const std::string line =
          command.starts_with("kullback distill")
              ? "kullback distill --quiet --teacher smollm2-135m-instruct --student-layers every-2 --data rows.jsonl"
          : command.starts_with("kullback sft") ? "kullback sft --quiet --model my-model --data rows.jsonl"
                                                : "kullback align --quiet --model my-model --data pairs.jsonl";
      ASSERT_EQ(shell(line + " --max-steps 2 --samples 0 --output " + run), 0) << contents(folder_ / "err");
    }
    fs::remove(folder_ / run / "report.html");
    for (const auto& inner : fs::directory_iterator(folder_ / run)) {  // of a comparison
      if (inner.is_directory()) fs::remove(inner.path() / "report.html");
    }
  }

  void run_all(const std::string& where, const std::vector<std::string>& commands,
               const std::function<bool(const std::string&)>& wanted) {
    fs::remove_all(folder_ / "runs");  // those of another page
    for (const std::string& command : commands) {
      if (!wanted(command)) continue;
      prepare(command);
      EXPECT_EQ(shell(command), 0) << where << ": " << command << "\n" << contents(folder_ / "err");
    }
  }

  fs::path folder_;
};

/// Minutes: run by the slow test alone.
bool is_slow(const std::string& command) {
  return command.starts_with("kullback claim") || command.find("data/direct-answers") != std::string::npos;
}
/// Asks the network for what the sandbox has.
bool is_pull(const std::string& command) { return command.starts_with("kullback pull"); }
bool is_quick(const std::string& command) { return !is_slow(command) && !is_pull(command); }

std::vector<fs::path> pages() {
  std::set<fs::path> all{fs::path(KULLBACK_SOURCE) / "README.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(KULLBACK_SOURCE) / "docs")) {
    if (entry.path().extension() == ".md") all.insert(entry.path());
  }
  return {all.begin(), all.end()};
}

TEST_F(Documentation, CommandsOfThePagesRun) {
  size_t count = 0;
  for (const fs::path& page : pages()) {
    const std::vector<std::string> commands = commands_of_page(page);
    run_all(page.filename().string(), commands, is_quick);
    count += commands.size();
  }
  EXPECT_GT(count, 30U);
}

// A block whose fence names a file ("```cpp kullback/align/r_dpo.h") shows that file as it is.
TEST(DocumentedCode, IsTheFilesThatItNames) {
  size_t count = 0;
  for (const fs::path& page : pages()) {
    const std::string text = contents(page);
    for (size_t at = text.find("\n```"); at != std::string::npos; at = text.find("\n```", at + 4)) {
      const size_t line = text.find('\n', at + 4), space = text.find(' ', at);
      if (space > line) continue;
      const fs::path file = fs::path(KULLBACK_SOURCE) / text.substr(space + 1, line - space - 1);
      EXPECT_EQ(text.substr(line + 1, text.find("\n```", line) - line), contents(file)) << page << " shows " << file;
      ++count;
    }
  }
  EXPECT_GE(count, 5U);
}

/// The examples of the commands whose names lie within [begin, end).
std::vector<std::string> names_between(const std::string& begin, const std::string& end) {
  std::vector<std::string> names;
  for (const std::string& name : command_names()) {
    if (name >= begin && name < end) names.push_back(name);
  }
  return names;
}

class HelpExamples : public Documentation, public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(HelpExamples, Run) {
  const std::vector<std::string> names = names_between(GetParam().first, GetParam().second);
  EXPECT_FALSE(names.empty());
  for (const std::string& command : names) {
    const std::vector<std::string> examples = examples_of_help(command);
    EXPECT_FALSE(examples.empty()) << command << " has no example";
    run_all("kullback " + command + " --help", examples, is_quick);
  }
}

// In parts, which ctest runs side by side.
INSTANTIATE_TEST_SUITE_P(Commands, HelpExamples,
                         ::testing::Values(std::pair{"a", "compare"}, std::pair{"compare", "distill"},
                                           std::pair{"distill", "g"}, std::pair{"g", "~"}));

TEST_F(Documentation, SlowCommandsRun) {
  for (const fs::path& page : pages()) run_all(page.filename().string(), commands_of_page(page), is_slow);
  for (const std::string& command : command_names()) run_all(command, examples_of_help(command), is_slow);
}

}  // namespace
}  // namespace kullback::test
