#include "kullback/io/ggml_type.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>

namespace kullback {
namespace {

constexpr std::array<GgmlLayout, 13> layouts{{
    {GgmlType::f32, "F32", 1, 4},
    {GgmlType::f16, "F16", 1, 2},
    {GgmlType::bf16, "BF16", 1, 2},
    {GgmlType::q8_0, "Q8_0", 32, 34},
    {GgmlType::q4_0, "Q4_0", 32, 18},
    {GgmlType::q4_1, "Q4_1", 32, 20},
    {GgmlType::q5_0, "Q5_0", 32, 22},
    {GgmlType::q5_1, "Q5_1", 32, 24},
    {GgmlType::q2_k, "Q2_K", 256, 84},
    {GgmlType::q3_k, "Q3_K", 256, 110},
    {GgmlType::q4_k, "Q4_K", 256, 144},
    {GgmlType::q5_k, "Q5_K", 256, 176},
    {GgmlType::q6_k, "Q6_K", 256, 210},
}};

// Types that exist but are not read, so that the message can name them.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 21> unread{{
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},   {4, "Q4_2"},   {5, "Q4_3"},
}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::span<const GgmlLayout> ggml_layouts() { return layouts; }

const GgmlLayout& layout_of(GgmlType type) {
  for (const GgmlLayout& layout : layouts) {
    if (layout.type == type) return layout;
  }
  throw std::logic_error("no such GgmlType");
}

std::optional<GgmlType> ggml_type(std::uint32_t number) {
  for (const GgmlLayout& layout : layouts) {
    if (static_cast<std::uint32_t>(layout.type) == number) return layout.type;
  }
  return std::nullopt;
}

std::optional<GgmlType> ggml_type(std::string_view name) {
  for (const GgmlLayout& layout : layouts) {
    if (equal_ignoring_case(layout.name, name)) return layout.type;
  }
  return std::nullopt;
}

std::string_view ggml_type_name(std::uint32_t number) {
  if (const auto type = ggml_type(number)) return layout_of(*type).name;
  for (const auto& [value, name] : unread) {
    if (value == number) return name;
  }
  return {};
}

}  // namespace kullback
