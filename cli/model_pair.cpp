#include "cli/model_pair.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "kullback/base/error.h"
#include "kullback/lm/lora.h"

namespace kullback {
namespace fs = std::filesystem;

namespace {

/// Whether the file begins as a store of a teacher's rows does.
bool is_record(const std::string& path) {
  std::array<char, 8> beginning{};
  std::ifstream file(path, std::ios::binary);
  return fs::is_regular_file(path) && file.read(beginning.data(), beginning.size()) &&
         std::string_view(beginning.data(), beginning.size()) == "KULLTL01";
}

}  // namespace

bool is_adapter_folder(const std::string& path) { return fs::exists(fs::path(path) / "adapter_config.json"); }

ModelPair load_pair(const std::string& a, const std::string& b, WeightType a_kept, WeightType b_kept) {
  ModelPair pair{.a = {.name = a}, .b = {.name = b}};
  const bool recorded_a = is_record(a), recorded_b = is_record(b);
  if (recorded_a && recorded_b) fail("{} and {}: both are recorded rows; one side must be a model", a, b);
  const auto load = [&](NamedModel& side, WeightType kept) {
    pair.loaded.push_back(std::make_unique<Model>(load_model(side.name, at::kFloat, kept)));
    side.model = pair.loaded.back().get();
  };
  if (!recorded_a) load(pair.a, a_kept);
  if (recorded_b) return pair;
  if (recorded_a || !is_adapter_folder(b)) return load(pair.b, b_kept), std::move(pair);
  load_adapter(pair.loaded[0]->transformer, b);  // one model, its adapter off and on
  pair.a.use = AdapterUse::off;
  pair.b.model = pair.a.model;
  return pair;
}

std::pair<ComparedSide, ComparedSide> compared_sides(const ModelPair& pair, const SupervisedData& data) {
  if (!pair.recorded()) return {compared_side(pair.a.reference()), compared_side(pair.b.reference())};
  const bool first = pair.a.model == nullptr;
  auto record =
      std::make_shared<const Teacher>(recorded_rows((first ? pair.a : pair.b).name, data, pair.tokenizing().text()));
  ComparedSide of_record = compared_side(record);
  ComparedSide of_model = compared_side((first ? pair.b : pair.a).reference(), of_record.vocabulary);
  if (first) return {std::move(of_record), std::move(of_model)};
  return {std::move(of_model), std::move(of_record)};
}

}  // namespace kullback
