#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kullback/base/command.h"

namespace kullback {

/// One command of the program. `describe` makes its declaration, for help and the docs; `run` takes the arguments after its
/// name and gives back the exit status.
struct Program {
  std::string name;
  std::string summary;
  std::function<Command()> describe;
  std::function<int(const std::vector<std::string>& arguments)> run;
};

const std::vector<Program>& programs();  ///< sorted by name

/// A file-scope object of this type adds a command.
struct RegisteredProgram {
  explicit RegisteredProgram(Program program);
};

/// Exit statuses, the same for every command.
enum ExitStatus : int {
  exit_success = 0,
  exit_not_passed = 1,  ///< the command worked, and its answer is no: a check or a claim failed
  exit_bad_input = 2,   ///< one sentence on standard error says what is wrong
  exit_fault = 3,       ///< a fault of the program itself
  exit_interrupted = 130,
};

}  // namespace kullback
