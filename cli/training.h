#pragma once

#include <string>
#include <vector>

#include "cli/program.h"
#include "kullback/base/registry.h"
#include "kullback/train/run.h"

namespace kullback {

/// What commands that train share: how an interrupted run goes on, and how a run ends.
struct ResumeOptions {
  std::string resume;
  bool json = false;
};
const Options<ResumeOptions>& resume_options();

/// Adds the options of training that all of them have, in their usual order.
void training_options(Command& command, RunJob& job);

/// What a run folder holds.
enum class RunState { to_do, begun, complete };
RunState run_state(const std::string& folder);

/// A job of the command that a method's family has, with the method's default options.
template <class Job>
Job job_of(const std::string& method, Family family) {
  Job job;
  job.method = &find_method(method, family);
  job.method_options = job.method->options->defaults();
  return job;
}

/// The arguments that the run will have: those given, or the configuration in the folder of --resume. Errors begin with
/// the command's name.
std::vector<std::string> resumed_arguments(const std::string& command, const std::vector<std::string>& given,
                                           bool* resumed);

/// An Error where what every run needs is missing.
void require_inputs(const std::string& command, const RunJob& job);

/// Prints what came out, as a table or as JSON, or how to go on; gives back the exit status.
int finish_run(const std::string& command, const RunJob& job, const RunResult& result, bool json);

}  // namespace kullback
