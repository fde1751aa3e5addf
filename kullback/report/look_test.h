#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace kullback {

/// An empty folder for what a test writes. With KULLBACK_LOOK set to a folder it lies there and stays, for people to
/// look at and for the scripts of tests/interop.
inline std::filesystem::path look_folder(const std::string& name) {
  const char* look = std::getenv("KULLBACK_LOOK");
  const std::filesystem::path folder =
      std::filesystem::path(look != nullptr ? std::string(look) : testing::TempDir() + "/kullback-report") / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace kullback
