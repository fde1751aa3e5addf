#include <map>
#include <set>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/io/files.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

Json read_json(const std::filesystem::path& path) {
  try {
    return Json::parse(read_text(path));
  } catch (const Json::parse_error& error) {
    fail("{}: malformed JSON at byte {}", path.string(), error.byte);
  }
}

// The files of a checkpoint, by the names of the tensors in them.
class Shards {
 public:
  explicit Shards(const std::filesystem::path& folder) : folder_(folder) {
    const std::filesystem::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
    if (std::filesystem::exists(index)) {
      read_index(index);
    } else if (std::filesystem::exists(whole)) {
      const SafetensorsFile& file = open("model.safetensors");
      for (const TensorBytes& tensor : file.tensors()) place_[tensor.name] = "model.safetensors";
    } else {
      fail("{}: holds neither model.safetensors nor model.safetensors.index.json", folder.string());
    }
  }

  const SafetensorsFile& file_of(const std::string& tensor) {
    const auto found = place_.find(tensor);
    if (found == place_.end()) fail("{}: there is no tensor '{}'", folder_.string(), tensor);
    return open(found->second);
  }

  const std::map<std::string, std::string>& places() const { return place_; }

 private:
  void read_index(const std::filesystem::path& path) {
    const Json index = read_json(path);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      fail("{}: no object 'weight_map'", path.string());
    for (const auto& [tensor, shard] : index["weight_map"].items()) {
      if (!shard.is_string())
        fail("{}: the file of tensor '{}' is {}, which is not a name", path.string(), tensor, shard.dump());
      const auto name = shard.get<std::string>();
      if (name.empty() || std::filesystem::path(name).filename() != name)
        fail("{}: tensor '{}' is said to be in '{}', which is not a file of the same folder", path.string(), tensor,
             name);
      place_[tensor] = name;
    }
  }

  const SafetensorsFile& open(const std::string& name) {
    const auto found = open_.find(name);
    return found != open_.end() ? found->second
                                : open_.emplace(name, SafetensorsFile::open(folder_ / name)).first->second;
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> place_;
  std::map<std::string, SafetensorsFile> open_;
};

// Files name the same tensors in several ways: without the name of the model's body before them (GPT-2's first files), or
// as the language part of a model that sees images. What a layout calls a tensor, and what this checkpoint does.
class Names {
 public:
  Names(const Shards& shards, const Layout& layout) : layout_(layout) {
    const std::string embedding = std::string(layout.embedding) + ".weight";
    for (const Spelling spelling : {Spelling::plain, Spelling::bare, Spelling::nested, Spelling::nested_model}) {
      spelling_ = spelling;
      if (shards.places().contains(stored(embedding))) return;
    }
    spelling_ = Spelling::plain;
  }

  std::string stored(const std::string& tensor) const {
    const std::string body = std::string(layout_.embedding).substr(0, std::string(layout_.embedding).find('.') + 1);
    const bool in_body = tensor.starts_with(body);
    switch (spelling_) {
      case Spelling::plain: return tensor;
      case Spelling::bare: return in_body ? tensor.substr(body.size()) : tensor;
      case Spelling::nested: return "language_model." + tensor;
      case Spelling::nested_model: return in_body ? "model.language_model." + tensor.substr(body.size()) : tensor;
    }
    return tensor;
  }

  // Parts of such a model that do not read text.
  bool is_elsewhere(const std::string& tensor) const {
    if (spelling_ != Spelling::nested && spelling_ != Spelling::nested_model) return false;
    return tensor.find("vision_tower.") != std::string::npos ||
           tensor.find("multi_modal_projector.") != std::string::npos;
  }

 private:
  enum class Spelling { plain, bare, nested, nested_model };
  const Layout& layout_;
  Spelling spelling_ = Spelling::plain;
};

// Buffers that old files carry and that follow from the configuration (rotary frequencies, causal masks), and a head
// that is the embedding once more.
bool may_be_ignored(const std::string& tensor, const Config& config, const std::string& head) {
  for (const char* buffer :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"}) {
    if (tensor.ends_with(buffer)) return true;
  }
  return config.tied_head && tensor == head;
}

void check_all_used(const std::filesystem::path& folder, const Config& config, const Layout& layout, const Names& names,
                    const Shards& shards, std::set<std::string> used) {
  for (const std::string& name : stored_names(config, layout)) used.insert(names.stored(name));
  const std::string head = names.stored(std::string(layout.head) + ".weight");
  for (const auto& [tensor, shard] : shards.places()) {
    if (!used.contains(tensor) && !may_be_ignored(tensor, config, head) && !names.is_elsewhere(tensor)) {
      fail("{}: tensor '{}' is not part of the model that config.json describes", (folder / shard).string(), tensor);
    }
  }
}

constexpr const char* score_weight = "score.weight";
constexpr const char* score_bias = "score.bias";

/// A head that classifies, [labels,D], and its bias.
void read_score(const std::filesystem::path& folder, Shards& shards, int64_t width, at::ScalarType dtype,
                ClassificationModel& into) {
  const auto read = [&](const char* name) {
    const SafetensorsFile& file = shards.file_of(name);
    at::Tensor tensor = at::empty(file.tensor(name).shape, dtype);
    read_tensor(file.name(), file.tensor(name), tensor);
    check_finite(file.name(), name, tensor);
    return tensor;
  };
  if (!shards.places().contains(score_weight))
    fail("{}: no tensor 'score.weight'; it is not a model for sequence classification", folder.string());
  into.head = read(score_weight);
  if (into.head.dim() != 2 || into.head.size(1) != width)
    fail("{}: tensor 'score.weight' is not one of rows of {} numbers", folder.string(), width);
  if (shards.places().contains(score_bias)) into.bias = read(score_bias);
  if (into.bias.defined()) check_shape(folder.string(), score_bias, into.bias.sizes(), {into.head.size(0)});
}

/// `score`: receives the head that classifies, instead of one over tokens.
Transformer transformer_from_folder(const std::filesystem::path& folder, const Config& config, at::ScalarType dtype,
                                    WeightType kept, ClassificationModel* score) {
  Shards shards(folder);
  if (score != nullptr) read_score(folder, shards, config.hidden_size, dtype, *score);
  const Layout& layout = hugging_face_layout(config.model_type);
  const Names names(shards, layout);
  check_all_used(folder, config, layout, names, shards,
                 score == nullptr ? std::set<std::string>() : std::set<std::string>{score_weight, score_bias});
  WeightSource source;
  source.name = folder.string();
  source.stored_name = [&](const std::string& name) { return names.stored(name); };
  source.shape = [&](const std::string& name) {
    const std::string stored = names.stored(name);
    return std::span<const int64_t>(shards.file_of(stored).tensor(stored).shape);
  };
  source.read = [&](const std::string& name, at::Tensor& into) {
    const SafetensorsFile& file = shards.file_of(names.stored(name));
    const TensorBytes& stored = file.tensor(names.stored(name));
    read_tensor(file.name(), stored, into);
    release_pages(stored.bytes);
  };
  return read_weights(config, layout, dtype, source, kept);
}

// A number, a list of numbers, or nothing.
std::vector<int32_t> token_ids(const Json& json, const char* key, const std::string& source) {
  std::vector<int32_t> ids;
  if (!json.contains(key) || json[key].is_null()) return ids;
  for (const Json& id : json[key].is_array() ? json[key] : Json::array({json[key]})) {
    if (!id.is_number_integer())
      fail("{}: the value of '{}' is {}, which is not a token id", source, key, json[key].dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

GenerationDefaults generation_from_folder(const std::filesystem::path& folder, const Json& config) {
  GenerationDefaults defaults;
  defaults.stop_ids = token_ids(config, "eos_token_id", (folder / "config.json").string());
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return defaults;
  const Json json = read_json(path);
  if (!json.is_object()) fail("{}: not a JSON object", path.string());
  const std::vector<int32_t> stops = token_ids(json, "eos_token_id", path.string());
  if (!stops.empty()) defaults.stop_ids = stops;
  const auto number = [&](const char* key) { return json.contains(key) && json[key].is_number(); };
  if (number("temperature")) defaults.temperature = json["temperature"].get<double>();
  if (number("top_p")) defaults.top_p = json["top_p"].get<double>();
  if (number("top_k")) defaults.top_k = json["top_k"].get<int64_t>();
  return defaults;
}

// In a file of its own, or in tokenizer_config.json, where several named ones may be listed.
std::string jinja_from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path own = folder / "chat_template.jinja", path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(own)) return read_text(own);
  if (!std::filesystem::exists(path)) return "";
  const Json json = read_json(path);
  if (!json.is_object() || !json.contains("chat_template")) return "";
  const Json& found = json["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  for (const Json& named : found.is_array() ? found : Json::array()) {
    if (!named.is_object() || !named.contains("name") || named["name"] != "default") continue;
    if (named.contains("template") && named["template"].is_string()) return named["template"].get<std::string>();
  }
  return "";
}

Model read_model(const std::filesystem::path& folder, at::ScalarType dtype, bool with_weights, WeightType kept,
                 ClassificationModel* score) {
  const std::filesystem::path config_path = folder / "config.json";
  if (!std::filesystem::exists(config_path))
    fail("{}: holds no config.json, so it is not a Hugging Face model", folder.string());
  const Json json = read_json(config_path);
  Config config = config_from_json(json, config_path.string());
  Model model;
  model.name = folder.string();
  if (score != nullptr) config.tied_head = true;  // there is no head over tokens, so that none is looked for
  model.transformer = with_weights ? transformer_from_folder(folder, config, dtype, kept, score) : shapes_alone(config);
  model.tokenizer = read_tokenizer(folder);
  if (model.tokenizer && model.tokenizer->vocabulary_size() > config.vocabulary_size) {
    fail("{}: the tokenizer has {} tokens and the embedding only {} rows", folder.string(),
         model.tokenizer->vocabulary_size(), config.vocabulary_size);
  }
  model.generation = generation_from_folder(folder, json);
  set_chat_template(model, jinja_from_folder(folder));
  return model;
}

}  // namespace

Model read_folder(const std::filesystem::path& folder, at::ScalarType dtype, bool with_weights, WeightType kept) {
  return read_model(folder, dtype, with_weights, kept, nullptr);
}

ClassificationModel read_classification_folder(const std::filesystem::path& folder, at::ScalarType dtype) {
  ClassificationModel read{.model = {}, .head = {}, .bias = {}};
  read.model = read_model(folder, dtype, /*with_weights=*/true, WeightType::float32, &read);
  return read;
}

}  // namespace kullback
