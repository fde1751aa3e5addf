#pragma once

#include <cstdint>

/// Vector code of what a step of generation does, chosen at run time for SSE4, AVX2, AVX-512 or NEON. float32 throughout.
namespace kullback::detail {

/// A matrix in memory: rows one after another, as WeightType keeps them.
struct KeptRows {
  enum class Type { float32, bfloat16, int8 } type;
  const void* data;
  int64_t length;  ///< numbers of a row
};

/// The keys or values of one head of a sequence: [seen, size], `stride` numbers from one token to the next.
struct HeadCache {
  const float* keys;
  const float* values;
  int64_t seen, stride;
};

struct StepKernels {
  /// y[n][row] = sum_k x[n][k] W[row][k] for rows [first, last). x: [count, length]; y: [count, stride]
  void (*product)(const KeptRows& weight, int64_t first, int64_t last, const float* x, int64_t count, float* y,
                  int64_t stride);
  /// Rows [first, last) as float32. out: [last - first, length]
  void (*in_full)(const KeptRows& weight, int64_t first, int64_t last, float* out);
  /// x / sqrt(mean(x^2) + epsilon) * weight. [size]
  void (*rms_norm)(const float* x, const float* weight, int64_t size, double epsilon, float* out);
  /// Attention of one token's query heads to one key head. query, out: [group, size]; scores: room for [group, seen]
  void (*attend)(const float* query, int64_t group, int64_t size, const HeadCache& cache, float scale, float softcap,
                 float* scores, float* out);
};

const StepKernels& step_kernels();

}  // namespace kullback::detail
