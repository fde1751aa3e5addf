#include "kullback/train/soup.h"

#include <filesystem>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/lm/lora.h"
#include "kullback/train/teacher.h"
#include "kullback/train/weight_average.h"

namespace kullback {

Model load_merged(const std::string& name, const std::string& base, const std::string& option) {
  if (!std::filesystem::exists(std::filesystem::path(name) / "adapter_config.json")) return load_model(name);
  if (base.empty()) fail("{}: {} is an adapter; say with --base which model it is for", option, name);
  Model model = load_model(base);
  load_adapter(model.transformer, name);
  merge_lora(model.transformer);
  model.name = name;
  return model;
}

Model soup(const std::vector<Model>& models, const std::vector<double>& weights) {
  const at::NoGradGuard no_grad;
  Model average = models.at(0);
  average.transformer = models[0].transformer.clone();
  const std::vector<NamedTensor> into = average.transformer.parameters();
  std::vector<std::vector<NamedTensor>> all;
  for (const Model& model : models) {
    all.push_back(model.transformer.parameters());
    if (all.back().size() != into.size())
      fail("{} has {} tensors, {} has {}: only models of one layout can be averaged", model.name, all.back().size(),
           models[0].name, into.size());
    if (model.tokenizer && average.tokenizer &&
        (model.text().vocabulary_size() != average.text().vocabulary_size() ||
         !same_tokens(model.text(), average.text())))
      fail("{} has another tokenizer than {}: what a row of its embedding stands for is another token", model.name,
           models[0].name);
  }
  for (size_t t = 0; t < into.size(); ++t) {
    std::vector<at::Tensor> of_each;
    for (size_t k = 0; k < models.size(); ++k) {
      const NamedTensor& one = all[k][t];
      if (one.name != into[t].name || one.tensor.sizes() != into[t].tensor.sizes())
        fail("{}: tensor {} is no {} of {} as in {}: only models of one layout can be averaged", models[k].name,
             one.name, into[t].name, fmt::join(into[t].tensor.sizes(), " x "), models[0].name);
      of_each.push_back(one.tensor);
    }
    at::Tensor place = into[t].tensor;
    place.copy_(weighted_average(of_each, weights));
  }
  average.name = "the average of " + models[0].name + " and others";
  return average;
}

}  // namespace kullback
