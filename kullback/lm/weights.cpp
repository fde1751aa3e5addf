#include "kullback/lm/weights.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "kullback/io/ggml_type.h"
#include "kullback/lm/step_kernels.h"
#include "kullback/lm/step_product.h"

namespace kullback {
namespace {

constexpr int64_t block = 32, block_bytes = 34;  // of Q8_0

detail::KeptRows rows_in_memory(const at::Tensor& kept) {
  using Type = detail::KeptRows::Type;
  if (kept.dim() != 2 || !kept.is_contiguous()) throw std::logic_error("a kept matrix must be contiguous [rows, ...]");
  const auto as = [&](Type type) { return detail::KeptRows{type, kept.const_data_ptr(), row_length(kept)}; };
  switch (kept.scalar_type()) {
    case at::kFloat: return as(Type::float32);
    case at::kBFloat16: return as(Type::bfloat16);
    case at::kByte: return as(Type::int8);
    default: throw std::logic_error("a kept matrix is float32, bfloat16 or int8 blocks");
  }
}

// Rows that are no whole blocks are no int8.
WeightType type_of(const at::Tensor& matrix, WeightType wanted) {
  return wanted == WeightType::int8 && matrix.size(1) % block != 0 ? WeightType::bfloat16 : wanted;
}

at::Tensor int8_blocks(const at::Tensor& matrix) {
  const at::Tensor full = matrix.contiguous();
  const int64_t rows = full.size(0), length = full.size(1);
  at::Tensor blocks = at::empty({rows, length / block * block_bytes}, at::kByte);
  const float* from = full.const_data_ptr<float>();
  auto* to = static_cast<std::byte*>(blocks.mutable_data_ptr());
  at::parallel_for(0, rows, std::max<int64_t>(1, 65536 / length), [&](int64_t first, int64_t last) {
    const auto count = static_cast<size_t>(last - first);
    quantize(GgmlType::q8_0, {from + first * length, count * static_cast<size_t>(length)},
             {to + first * blocks.size(1), count * static_cast<size_t>(blocks.size(1))});
  });
  return blocks;
}

// Rows of W that a thread takes at once at least: a thread is not worth waking for less.
int64_t grain(int64_t length) { return std::max<int64_t>(4, 32768 / length / 4 * 4); }

void many_row_product(const at::Tensor& x, const detail::KeptRows& weight, at::Tensor& y) {
  const int64_t rows = y.size(1), length = weight.length;
  const int64_t part = std::min(rows, std::max<int64_t>(64, (int64_t{1} << 19) / length));
  at::Tensor full = at::empty({part, length}, at::kFloat);
  float* numbers = full.mutable_data_ptr<float>();
  for (int64_t begin = 0; begin < rows; begin += part) {
    const int64_t count = std::min(part, rows - begin);
    at::parallel_for(0, count, grain(length), [&](int64_t first, int64_t last) {
      detail::step_kernels().in_full(weight, begin + first, begin + last, numbers + first * length);
    });
    at::Tensor columns = y.narrow(1, begin, count);
    at::mm_out(columns, x, full.narrow(0, 0, count).t());
  }
}

}  // namespace

const std::vector<std::pair<std::string, WeightType>>& weight_types() {
  static const std::vector<std::pair<std::string, WeightType>> all = {
      {"float32", WeightType::float32}, {"bfloat16", WeightType::bfloat16}, {"int8", WeightType::int8}};
  return all;
}

at::Tensor kept_as(const at::Tensor& matrix, WeightType type) {
  switch (type_of(matrix, type)) {
    case WeightType::float32: return matrix;
    case WeightType::bfloat16: return matrix.to(at::kBFloat16);
    case WeightType::int8: return int8_blocks(matrix);
  }
  throw std::logic_error("a type of weights without a rule");
}

int64_t kept_bytes(const at::Tensor& matrix, WeightType type) {
  switch (type_of(matrix, type)) {
    case WeightType::float32: return 4 * matrix.numel();
    case WeightType::bfloat16: return 2 * matrix.numel();
    case WeightType::int8: return matrix.numel() / block * block_bytes;
  }
  throw std::logic_error("a type of weights without a rule");
}

int64_t row_length(const at::Tensor& kept) {
  return kept.scalar_type() == at::kByte ? kept.size(1) / block_bytes * block : kept.size(1);
}

at::Tensor in_full(const at::Tensor& kept) {
  if (kept.scalar_type() != at::kByte) return kept.to(at::kFloat);
  const detail::KeptRows rows = rows_in_memory(kept);
  at::Tensor full = at::empty({kept.size(0), rows.length}, at::kFloat);
  float* numbers = full.mutable_data_ptr<float>();
  at::parallel_for(0, kept.size(0), grain(rows.length), [&](int64_t first, int64_t last) {
    detail::step_kernels().in_full(rows, first, last, numbers + first * rows.length);
  });
  return full;
}

at::Tensor rows_in_full(const at::Tensor& kept, const at::Tensor& ids) { return in_full(kept.index_select(0, ids)); }

at::Tensor kept_product(const at::Tensor& x, const at::Tensor& kept) {
  if (at::GradMode::is_enabled() && x.requires_grad())
    throw std::logic_error("weights that are kept short take part in no gradient");
  const detail::KeptRows weight = rows_in_memory(kept);
  if (x.dim() != 2 || x.size(1) != weight.length || x.scalar_type() != at::kFloat)
    throw std::logic_error("kept_product: x must be float32 [N, length]");
  if (x.size(0) <= few_rows) return few_row_products(x, {kept})[0];
  at::Tensor y = at::empty({x.size(0), kept.size(0)}, x.options());
  many_row_product(x.contiguous(), weight, y);
  return y;
}

bool is_step(const at::Tensor& x, const at::Tensor& weight) {
  return c10::InferenceMode::is_enabled() && x.scalar_type() == at::kFloat && x.is_cpu() && x.dim() == 2 &&
         x.size(0) <= few_rows && weight.dim() == 2 && weight.is_contiguous() &&
         (weight.scalar_type() == at::kFloat || is_short(weight, at::kFloat));
}

at::Tensor weight_product(const at::Tensor& x, const at::Tensor& weight) {
  return is_short(weight, x.scalar_type()) || is_step(x, weight) ? kept_product(x, weight) : at::linear(x, weight);
}

std::vector<at::Tensor> few_row_products(const at::Tensor& x, const std::vector<at::Tensor>& kept) {
  constexpr int64_t together = 4;  // rows that the vector code takes at once
  struct Part {
    detail::KeptRows weight;
    int64_t rows, begin;  // begin: of its groups of rows among those of all
    float* to;
  };
  const at::Tensor rows = x.contiguous();
  const int64_t count = x.size(0);
  std::vector<at::Tensor> products;
  std::vector<Part> parts;
  int64_t groups = 0;
  for (const at::Tensor& one : kept) {
    products.push_back(at::empty({count, one.size(0)}, x.options()));
    parts.push_back({rows_in_memory(one), one.size(0), groups, products.back().mutable_data_ptr<float>()});
    groups += (one.size(0) + together - 1) / together;
  }
  const float* from = rows.const_data_ptr<float>();
  at::parallel_for(0, groups, grain(x.size(1)) / together, [&](int64_t first, int64_t last) {
    for (const Part& part : parts) {
      const int64_t begin = std::max<int64_t>(0, first - part.begin) * together,
                    end = std::min(part.rows, (last - part.begin) * together);
      if (begin < end) detail::step_kernels().product(part.weight, begin, end, from, count, part.to, part.rows);
    }
  });
  return products;
}

}  // namespace kullback
