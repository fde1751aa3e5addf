#pragma once

#include <string>
#include <vector>

#include "cli/program.h"

namespace kullback {

/// What shells and the manual say of one command: all its options, `--config` and `--help` too. Where `--method` chooses
/// the options, those of all its methods are there once each, a choice with all values that any of them takes.
struct Declaration {
  Command command;
  std::vector<OptionInfo> options;
  std::vector<std::string> words;  ///< what its arguments without a name may be; empty: files
};
std::vector<Declaration> declarations();  ///< sorted by name

/// Options that stand before or after any command's name.
const std::vector<OptionInfo>& general_options();

std::string bash_completion();
std::string zsh_completion();
std::string man_page();  ///< roff, for `man`

}  // namespace kullback
