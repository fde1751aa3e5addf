#pragma once

#include <string>
#include <vector>

#include "cli/program.h"
#include "kullback/train/run.h"

namespace kullback {

/// What commands that train share: how an interrupted run goes on, and how a run ends.
struct ResumeOptions {
  std::string resume;
};
const Options<ResumeOptions>& resume_options();

/// Adds the options of training that all of them have, in their usual order.
void training_options(Command& command, RunJob& job);

/// The arguments that the run will have: those given, or the configuration in the folder of --resume. Errors begin with
/// the command's name.
std::vector<std::string> resumed_arguments(const std::string& command, const std::vector<std::string>& given,
                                           bool* resumed);

/// An Error where what every run needs is missing.
void require_inputs(const std::string& command, const RunJob& job);

/// Prints what came out, or how to go on; gives back the exit status.
int finish_run(const std::string& command, const RunJob& job, const RunResult& result);

}  // namespace kullback
