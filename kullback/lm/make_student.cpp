#include "kullback/lm/make_student.h"

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

/// Of a setting a layer: those of the kept layers.
std::vector<bool> kept(const std::vector<bool>& all, const std::vector<int64_t>& layers) {
  if (all.empty()) return {};
  std::vector<bool> result;
  for (const int64_t layer : layers) result.push_back(all[static_cast<size_t>(layer)]);
  return result;
}

}  // namespace

std::vector<int64_t> student_layers(const std::string& text, int64_t layers) {
  std::vector<int64_t> chosen;
  if (text.starts_with("every-")) {
    const int64_t every = number(text.substr(6), text);
    if (every < 1) fail("option --student-layers: every-0 takes no layer");
    for (int64_t layer = 0; layer < layers; layer += every) chosen.push_back(layer);
    return chosen;
  }
  for (const std::string& part : split(text)) chosen.push_back(number(part, text));
  for (const int64_t layer : chosen) {
    if (layer >= layers)
      fail("option --student-layers: there is no layer {}; the teacher has {}, from 0 to {}", layer, layers,
           layers - 1);
  }
  return chosen;
}

Model make_student(const Model& teacher, const std::vector<int64_t>& layers) {
  if (layers.empty()) fail("option --student-layers: names no layer");
  Model student = teacher;
  student.transformer = teacher.transformer.clone();
  Config& config = student.transformer.config;
  const std::vector<Layer> all = std::move(student.transformer.layers);
  student.transformer.layers.clear();
  std::vector<bool> taken(all.size(), false);
  for (const int64_t layer : layers) {
    const auto i = static_cast<size_t>(layer);
    if (taken[i]) fail("option --student-layers: layer {} is named twice", layer);
    taken[i] = true;
    student.transformer.layers.push_back(all[i]);
  }
  config.layers = std::ssize(layers);
  config.sliding = kept(config.sliding, layers);
  config.unrotated = kept(config.unrotated, layers);
  student.name = teacher.name + " with fewer layers";
  return student;
}

}  // namespace kullback
