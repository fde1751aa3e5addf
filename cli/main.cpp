#include <algorithm>
#include <cstdio>
#include <exception>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/suggest.h"

namespace kullback {
namespace {

std::vector<Program>& registry() {
  static std::vector<Program> all;
  return all;
}

/// Options that stand before or after any command's name.
struct General {
  std::vector<std::string> rest;
  bool version = false;
};

General take_general(const std::vector<std::string>& arguments) {
  General general;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--quiet" || word == "-q") {
      set_verbosity(Verbosity::quiet);
    } else if (word == "--verbose" || word == "-v") {
      set_verbosity(Verbosity::verbose);
    } else if (word == "--threads" && i + 1 < arguments.size()) {
      const std::string& count = arguments[++i];
      if (count.empty() || count.size() > 4 || count.find_first_not_of("0123456789") != std::string::npos ||
          std::stoi(count) < 1) {
        fail("option --threads: \"{}\" is not a number of threads", count);
      }
      at::set_num_threads(std::stoi(count));
    } else if (word == "--version") {
      general.version = true;
    } else {
      general.rest.push_back(word);
    }
  }
  return general;
}

void print_overview() {
  fmt::print(
      "Kullback {}: learning under a divergence. Align, distil and compare language models.\n\nUsage: kullback COMMAND "
      "[options]\n\nCommands:\n",
      KULLBACK_VERSION);
  for (const Program& program : programs()) fmt::print("  {:<12} {}\n", program.name, program.summary);
  fmt::print(
      "\nEvery command explains itself with --help. For all of them: --threads N, --quiet, --verbose, --version.\n"
      "What a command finds goes to standard output, with --json as JSON; notes and progress to standard error.\n"
      "Colours: only on a terminal, and never where NO_COLOR is set.\n"
      "Exit status: 0 success, 1 a check or claim did not pass, 2 bad input, 3 a fault of the program, 130 "
      "interrupted.\n\n"
      "First steps:\n"
      "  kullback pull smollm2-135m-instruct\n"
      "  kullback generate --model smollm2-135m-instruct --prompt \"What is the capital of France?\"\n"
      "  kullback align --method dpo --model smollm2-135m-instruct --data pairs.jsonl --output runs/first\n");
}

int run(const std::vector<std::string>& arguments) {
  const General general = take_general(arguments);
  if (general.version) {
    fmt::print("kullback {}\n", KULLBACK_VERSION);
    return exit_success;
  }
  if (general.rest.empty() || general.rest[0] == "--help" || general.rest[0] == "-h" || general.rest[0] == "help") {
    print_overview();
    return exit_success;
  }
  std::vector<std::string> names;
  for (const Program& program : programs()) {
    if (program.name == general.rest[0]) return program.run({general.rest.begin() + 1, general.rest.end()});
    names.push_back(program.name);
  }
  fail("unknown command \"{}\"{}; `kullback --help` lists them", general.rest[0], suggestion(general.rest[0], names));
}

}  // namespace

const std::vector<Program>& programs() { return registry(); }

RegisteredProgram::RegisteredProgram(Program program) {
  auto& all = registry();
  const auto place = std::lower_bound(all.begin(), all.end(), program,
                                      [](const Program& a, const Program& b) { return a.name < b.name; });
  all.insert(place, std::move(program));
}

}  // namespace kullback

int main(int count, char** words) {
  // Whole lines, so that results and notes that go to one file do not cut into each other.
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  try {
    return kullback::run({words + 1, words + count});
  } catch (const kullback::Error& error) {
    fmt::print(stderr, "kullback: {}\n", error.what());
    return kullback::exit_bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kullback: out of memory; a smaller --batch-size or --max-length needs less\n");
    return kullback::exit_fault;
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch appends a backtrace
    fmt::print(stderr, "kullback: a fault of the program, please report it: {}\n", text.substr(0, text.find('\n')));
    return kullback::exit_fault;
  }
}
