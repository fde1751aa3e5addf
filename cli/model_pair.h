#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kullback/measure/model_comparison.h"
#include "kullback/train/data.h"

namespace kullback {

/// A model as it was named on the command line, or a file in which a teacher's rows were recorded.
struct NamedModel {
  std::string name;
  const Model* model = nullptr;  ///< null where it was recorded
  AdapterUse use = AdapterUse::on;
  Reference reference() const { return {&model->transformer, use}; }
};

/// Two models of one tokenizer, kept alive beside what refers to them.
struct ModelPair {
  NamedModel a, b;
  std::vector<std::unique_ptr<Model>> loaded = {};
  bool recorded() const { return a.model == nullptr || b.model == nullptr; }
  const Model& tokenizing() const { return *loaded.front(); }  ///< whose tokenizer and template read the data
};

/// Names, GGUF files, Hugging Face folders; `b` may be the folder of a PEFT adapter of `a`; one of them may be a file that
/// `kullback teacher record` has written. How matrices are kept: an adapter's model as `a_kept` says.
ModelPair load_pair(const std::string& a, const std::string& b, WeightType a_kept = WeightType::float32,
                    WeightType b_kept = WeightType::float32);

/// The two sides. `data`: the rows that one of them was recorded of; not looked at where both are models.
std::pair<ComparedSide, ComparedSide> compared_sides(const ModelPair& pair, const SupervisedData& data);

bool is_adapter_folder(const std::string& path);

}  // namespace kullback
