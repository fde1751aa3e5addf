#pragma once

#include <nlohmann/json.hpp>

namespace kullback {

/// JSON whose objects keep the order in which they were written, so that files of ours read as they were meant.
using Json = nlohmann::ordered_json;

}  // namespace kullback
