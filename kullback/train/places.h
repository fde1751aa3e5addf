#pragma once

#include <cstdint>
#include <string>

namespace kullback {

/// Places in a response, joined by doubling so that late ones hold enough tokens: 1, 2, 3-4, 5-8, ...
inline constexpr int64_t most_joined_place = 12;  ///< the last one holds all that follow

/// 0, 1, 2, 3, ... for places 1, 2, 3-4, 5-8, ...; `place` counts from 0.
int64_t joined_place(int64_t place);
/// "1", "2", "3-4", ...
std::string place_text(int64_t joined);

}  // namespace kullback
