// Fixtures of kind "architecture": what another program makes of the checkpoint that lies beside them.
#include "kullback/base/error.h"
#include "kullback/lm/golden.h"
#include "kullback/lm/lora.h"
#include "kullback/train/check_kinds.h"

namespace kullback {
namespace {

// The model that is named, or the fixture's base, a folder beside its own, or its own folder.
Model checked_model(const Json& fixture, const std::filesystem::path& folder, const std::string& model) {
  if (!model.empty()) return load_model(model);
  if (!fixture.contains("base")) return load_model(folder.string());
  if (!fixture["base"].is_string()) fail("{}: \"base\" is not the path of a model", folder.string());
  return load_model((folder / fixture["base"].get<std::string>()).lexically_normal().string());
}

}  // namespace

CheckReport check_architecture(const Json& fixture, const std::filesystem::path& file, const std::string& model_name) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  Model model = checked_model(fixture, folder, model_name);
  if (std::filesystem::exists(folder / "adapter_config.json")) load_adapter(model.transformer, folder);
  CheckReport report{.file = file.string(), .kind = "architecture", .results = {}};
  for (const GoldenFigure& figure : golden_figures(fixture, model, file.string())) {
    report.results.push_back({.name = figure.name,
                              .passed = figure.passed,
                              .largest_difference = figure.largest_difference,
                              .tolerance = figure.tolerance,
                              .at = figure.at});
  }
  return report;
}

}  // namespace kullback
