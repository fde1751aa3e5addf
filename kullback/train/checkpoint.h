#pragma once

#include <filesystem>
#include <optional>

#include "kullback/base/json.h"
#include "kullback/train/optimizer.h"

namespace kullback {

/// Writes what a run needs to go on: the trained tensors, the optimiser's moments and `state`, with checksums, aside and then
/// renamed to FOLDER/checkpoints/step-000020. Keeps the newest `keep`.
void save_checkpoint(const std::filesystem::path& run_folder, const Optimizer& optimizer, const Json& state,
                     int64_t keep);

/// Restores the newest whole checkpoint into the optimiser and its parameters and gives back its state; nothing if there is
/// none. A damaged one is passed over with a warning and the one before is used. Error if its tensors do not fit.
std::optional<Json> load_checkpoint(const std::filesystem::path& run_folder, Optimizer& optimizer);

}  // namespace kullback
