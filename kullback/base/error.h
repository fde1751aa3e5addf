#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace kullback {

/// What a person can mend: a wrong file, line, tensor or option. Its text is one sentence that names the thing at fault.
/// The program prints it and exits with status 2; the library lets it pass to the caller. Faults of our own are
/// std::logic_error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error with a text in fmt's format: `fail("{}: line {}: no field 'rejected'", path, line)`.
template <class... Arguments>
[[noreturn]] void fail(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace kullback
