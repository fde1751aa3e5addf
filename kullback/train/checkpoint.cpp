#include "kullback/train/checkpoint.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/save.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

constexpr const char* tensors_name = "tensors.safetensors";
constexpr const char* state_name = "state.json";

/// All that changes while a run goes on, by name.
std::vector<NamedTensor> contents(const Optimizer& optimizer) {
  std::vector<NamedTensor> all = optimizer.moments();
  for (const NamedTensor& p : optimizer.parameters()) all.push_back({"parameter." + p.name, p.tensor.detach()});
  return all;
}

/// Checkpoints of a run, newest first.
std::vector<fs::path> checkpoints(const fs::path& run_folder) {
  std::vector<fs::path> found;
  std::error_code nothing;
  for (const auto& entry : fs::directory_iterator(run_folder / "checkpoints", nothing)) {
    if (entry.path().filename().string().starts_with("step-")) found.push_back(entry.path());
  }
  std::sort(found.rbegin(), found.rend());  // the names are padded with zeros
  return found;
}

/// Why a checkpoint cannot be used, or nothing.
std::optional<std::string> damage(const fs::path& checkpoint) {
  try {
    const Json state = read_json(checkpoint / state_name);
    if (!state.contains("sha256") || !state["sha256"].is_string()) return "its state has no checksum";
    if (sha256_of_file(checkpoint / tensors_name) != state["sha256"].get<std::string>())
      return "its checksum does not match";
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

void restore(const fs::path& checkpoint, const std::vector<NamedTensor>& contents) {
  const SafetensorsFile file = SafetensorsFile::open(checkpoint / tensors_name);
  for (const NamedTensor& into : contents) {
    const TensorBytes& saved = file.tensor(into.name);
    const at::Tensor tensor = into.tensor;
    if (saved.shape != tensor.sizes().vec() || saved.dtype != stored_dtype(tensor)) {
      fail("{}: tensor {} does not fit this run's model", file.name(), into.name);
    }
    std::memcpy(tensor.mutable_data_ptr(), saved.bytes.data(), saved.bytes.size());
  }
}

fs::path folder_of(const fs::path& run_folder, const Json& state) {
  return run_folder / "checkpoints" / fmt::format("step-{:08}", state.at("step").get<int64_t>());
}

}  // namespace

void save_checkpoint(const fs::path& run_folder, const Optimizer& optimizer, const Json& state, int64_t keep,
                     const std::vector<NamedTensor>& kept) {
  NewFolder folder(folder_of(run_folder, state));
  std::vector<TensorBytes> tensors;
  std::vector<NamedTensor> all = contents(optimizer);
  for (const NamedTensor& one : kept) all.push_back({"kept." + one.name, one.tensor.detach().contiguous()});
  for (const NamedTensor& one : all) {
    const auto* bytes = static_cast<const std::byte*>(one.tensor.const_data_ptr());
    tensors.push_back({one.name, stored_dtype(one.tensor), one.tensor.sizes().vec(), {bytes, one.tensor.nbytes()}});
  }
  write_safetensors(folder.path() / tensors_name, tensors);
  Json complete = state;
  complete["optimizer_steps"] = optimizer.steps();
  complete["sha256"] = sha256_of_file(folder.path() / tensors_name);
  write_file(folder.path() / state_name, complete.dump(1) + "\n");
  folder.commit();
  const std::vector<fs::path> saved = checkpoints(run_folder);
  for (size_t i = static_cast<size_t>(keep); i < saved.size(); ++i) fs::remove_all(saved[i]);
}

std::optional<Json> load_checkpoint(const fs::path& run_folder, Optimizer& optimizer) {
  for (const fs::path& checkpoint : checkpoints(run_folder)) {
    if (const auto reason = damage(checkpoint)) {
      warn(fmt::format("{} is damaged ({}); the one before is used", checkpoint.string(), *reason));
      continue;
    }
    restore(checkpoint, contents(optimizer));
    const Json state = read_json(checkpoint / state_name);
    optimizer.set_steps(state.at("optimizer_steps").get<int64_t>());
    return state;
  }
  return std::nullopt;
}

void load_kept(const fs::path& run_folder, const Json& state, const std::vector<NamedTensor>& kept) {
  if (kept.empty()) return;
  std::vector<NamedTensor> renamed;
  for (const NamedTensor& one : kept) renamed.push_back({"kept." + one.name, one.tensor});
  restore(folder_of(run_folder, state), renamed);
}

}  // namespace kullback
