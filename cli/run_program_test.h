#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kullback::test {

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct Outcome {
  int status = -1;
  std::string out, error;
};

/// Runs the program under test as a shell would.
inline Outcome run_program(const std::string& arguments) {
  const std::string base =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("kullback-cli-{}", getpid())).string();
  const std::string line = fmt::format("'{}' {} >'{}.out' 2>'{}.err'", KULLBACK_PROGRAM, arguments, base, base);
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(base + ".out"), contents(base + ".err")};
}

/// First words of the lines that are indented by two, and begin with `with`.
inline std::vector<std::string> first_words(const std::string& text, const std::string& with) {
  std::vector<std::string> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream stream(line);
    std::string word;
    if (line.starts_with("  ") && !line.starts_with("   ") && stream >> word && word.starts_with(with))
      words.push_back(word);
  }
  return words;
}

/// All commands, as the program lists them.
inline std::vector<std::string> command_names() {
  const std::string overview = run_program("--help").out;
  const size_t begin = overview.find("Commands:"), end = overview.find("Every command");
  return first_words(overview.substr(begin, end - begin), "");
}

/// An empty folder of this test's own.
inline std::filesystem::path fresh_folder(const std::string& name) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("kullback-cli-{}-{}", getpid(), name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline std::string written(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
  return file.string();
}

/// A file of preference pairs, short enough for a tiny model.
inline std::string tiny_pairs(const std::filesystem::path& file, int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += fmt::format("{{\"prompt\": \"Q{}\", \"chosen\": \"Yes {}\", \"rejected\": \"No {}\"}}\n", i, i, i * i);
  return written(file, rows);
}

}  // namespace kullback::test
