#include "kullback/lm/make_student.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

int64_t number(const std::string& text, const std::string& whole) {
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos)
    fail("option --student-layers: \"{}\" is neither like every-2 nor like 0,2,4", whole);
  return std::stoll(text);
}

/// Of a setting a layer: those of the first layer that each of the student's is made of.
std::vector<bool> kept(const std::vector<bool>& all, const std::vector<std::vector<int64_t>>& layers) {
  if (all.empty()) return {};
  std::vector<bool> result;
  for (const std::vector<int64_t>& one : layers) result.push_back(all[static_cast<size_t>(one[0])]);
  return result;
}

/// The configuration of a student of that width, whose heads are as wide as the teacher's.
Config narrowed(Config config, int64_t width) {
  if (width == 0) return config;
  const Config teacher = config;
  const int64_t whole = teacher.hidden_size;
  if (width < 0 || width > whole)
    fail("option --student-width: {} is not between 1 and the teacher's {}", width, whole);
  config.hidden_size = width;
  for (int64_t* const size : {&config.heads, &config.key_value_heads, &config.mlp_size}) {
    if (*size * width % whole != 0)
      fail(
          "option --student-width: {} of {} leaves no whole number of the teacher's {} heads, {} key heads and {} "
          "columns of the MLP",
          width, whole, teacher.heads, teacher.key_value_heads, teacher.mlp_size);
    *size = *size * width / whole;
  }
  return config;
}

/// The first numbers along every dimension, as many as `like` has.
at::Tensor cut(at::Tensor whole, const at::Tensor& like) {
  for (int64_t d = 0; d < like.dim(); ++d) whole = whole.narrow(d, 0, like.size(d));
  return whole;
}

}  // namespace

std::vector<std::vector<int64_t>> student_layers(const std::string& text, int64_t layers) {
  std::vector<std::vector<int64_t>> chosen;
  const bool every = text.starts_with("every-"), mean = text.starts_with("mean-");
  if (every || mean) {
    const int64_t block = number(text.substr(text.find('-') + 1), text);
    if (block < 1) fail("option --student-layers: {} takes no layer", text);
    for (int64_t first = 0; first < layers; first += block) {
      chosen.push_back({first});
      for (int64_t layer = first + 1; mean && layer < std::min(first + block, layers); ++layer)
        chosen.back().push_back(layer);
    }
    return chosen;
  }
  for (const std::string& part : split(text)) chosen.push_back({number(part, text)});
  for (const std::vector<int64_t>& one : chosen) {
    if (one[0] >= layers)
      fail("option --student-layers: there is no layer {}; the teacher has {}, from 0 to {}", one[0], layers,
           layers - 1);
    if (std::ranges::count(chosen, one) > 1) fail("option --student-layers: layer {} is named twice", one[0]);
  }
  return chosen;
}

Model make_student(const Model& teacher, const StudentShape& shape) {
  const at::NoGradGuard no_grad;
  const Transformer& whole = teacher.transformer;
  Config config = narrowed(whole.config, shape.width);
  config.layers = std::ssize(shape.layers);
  config.sliding = kept(config.sliding, shape.layers);
  config.unrotated = kept(config.unrotated, shape.layers);
  Model student = teacher;
  student.name = "a student made of " + teacher.name;
  student.transformer = empty_transformer(config, whole.embedding.options());
  Transformer& made = student.transformer;
  const auto fill = [](at::Tensor& into, const std::vector<at::Tensor>& from) {
    if (!into.defined()) return;
    at::Tensor sum = cut(from[0], into);
    for (size_t i = 1; i < from.size(); ++i) sum = sum + cut(from[i], into);
    into.copy_(from.size() > 1 ? sum / static_cast<double>(from.size()) : sum);
  };
  fill(made.embedding, {whole.embedding});
  fill(made.positions, {whole.positions});
  fill(made.final_norm.weight, {whole.final_norm.weight});
  fill(made.final_norm.bias, {whole.final_norm.bias});
  if (!config.tied_head) fill(made.head, {whole.head});
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const auto of_block = [&](const auto& member) {
      std::vector<at::Tensor> all;
      for (const int64_t layer : shape.layers[i]) all.push_back(member(whole.layers[static_cast<size_t>(layer)]));
      return all;
    };
    for (Norm Layer::*norm : layer_norms()) {
      fill((made.layers[i].*norm).weight, of_block([&](const Layer& layer) { return (layer.*norm).weight; }));
      fill((made.layers[i].*norm).bias, of_block([&](const Layer& layer) { return (layer.*norm).bias; }));
    }
    for (const NamedLinear& named : layer_linears()) {
      Linear& linear = made.layers[i].*named.linear;
      fill(linear.weight, of_block([&](const Layer& layer) { return (layer.*named.linear).weight; }));
      fill(linear.bias, of_block([&](const Layer& layer) { return (layer.*named.linear).bias; }));
    }
  }
  return student;
}

}  // namespace kullback
