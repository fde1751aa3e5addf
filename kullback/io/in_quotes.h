#pragma once

#include <string>
#include <string_view>

namespace kullback {

/// A name from a file in single quotes, fit for a message: bytes that do not print as `\xNN`, long names cut.
std::string in_quotes(std::string_view name);

}  // namespace kullback
