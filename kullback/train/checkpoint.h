#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/train/optimizer.h"

namespace kullback {

/// Writes what a run needs to go on: the trained tensors, the optimiser's moments and `state`, with checksums, aside and then
/// renamed to FOLDER/checkpoints/step-000020. Keeps the newest `keep`. `kept`: further tensors, of the task's own.
void save_checkpoint(const std::filesystem::path& run_folder, const Optimizer& optimizer, const Json& state,
                     int64_t keep, const std::vector<NamedTensor>& kept = {});

/// Restores the newest whole checkpoint into the optimiser and its parameters and gives back its state; nothing if there is
/// none. A damaged one is passed over with a warning and the one before is used. Error if its tensors do not fit.
std::optional<Json> load_checkpoint(const std::filesystem::path& run_folder, Optimizer& optimizer);

/// Puts those further tensors back, in place, from the checkpoint that `state` came from. Error if one is not there or does not
/// fit.
void load_kept(const std::filesystem::path& run_folder, const Json& state, const std::vector<NamedTensor>& kept);

}  // namespace kullback
