#pragma once

#include <string>

namespace kullback {

/// What the program tells on standard error besides its result. Quiet shows errors only; nothing is written to standard
/// output by the library.
enum class Verbosity { quiet, normal, verbose };
void set_verbosity(Verbosity verbosity);
Verbosity verbosity();

void note(const std::string& text);         ///< one line of information
void warn(const std::string& text);         ///< something a user should look at
void detail_note(const std::string& text);  ///< shown with --verbose only

}  // namespace kullback
