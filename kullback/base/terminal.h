#pragma once

#include <cstdio>

namespace kullback {

bool is_terminal(std::FILE* stream);

/// Whether what is written to a stream may have colours: it is a terminal that has them, and NO_COLOR is not set, or empty
/// (no-color.org).
bool shows_colours(std::FILE* stream);

}  // namespace kullback
