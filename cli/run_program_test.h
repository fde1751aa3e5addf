#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
