#include "kullback/lm/step_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kullback/lm/step_kernels.cpp"
#define KULLBACK_VECTOR_ARRAYS
#include "kullback/divergence/row_targets.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kullback::detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D()), kBlock = 32;
constexpr int64_t kChunk = 64;                  // blocks of which scales are made float32 at once
constexpr int kRows = 4;                        // rows of the matrix at once
constexpr int kColumns = kLanes >= 16 ? 4 : 2;  // rows of x at once: as many sums as there are registers for

HWY_INLINE float Sum(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// The sums of four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(V a, V b, V c, V d, float* out) {
  out[0] = Sum(a), out[1] = Sum(b), out[2] = Sum(c), out[3] = Sum(d);
}
#else
HWY_INLINE void StoreSums(V a, V b, V c, V d, float* out) {
  const hn::Repartition<double, D> pairs;
  const auto halves = [](V x, V y) HWY_ATTR {  // of every 128 bits: x0 + x2, y0 + y2, x1 + x3, y1 + y3
    return hn::Add(hn::InterleaveLower(D(), x, y), hn::InterleaveUpper(D(), x, y));
  };
  const auto ab = hn::BitCast(pairs, halves(a, b)), cd = hn::BitCast(pairs, halves(c, d));
  const V sums = hn::Add(hn::BitCast(D(), hn::InterleaveLower(pairs, ab, cd)),
                         hn::BitCast(D(), hn::InterleaveUpper(pairs, ab, cd)));
  alignas(64) float lanes[kLanes];
  hn::Store(sums, D(), lanes);
  for (int i = 0; i < 4; ++i) {
    out[i] = lanes[i];
    for (int64_t j = i + 4; j < kLanes; j += 4) out[i] += lanes[j];
  }
}
#endif

// Readers of rows: `Chunk` is what is read of W rows in some blocks, whose `Load(w, k)` makes the vector of the numbers k,
// k + 1, ... of row w; `Number` is one of those that make no whole vector. `Foresee` asks memory for what will be wanted two
// groups of rows later: several short rows read side by side are no pattern that a processor foresees. `kInOneGo`: with one
// row of x, memory is what is waited for, and is quickest read row after row; int8 has more to compute than to read, and one
// sum at a time would wait for itself.
struct Float32Rows {
  static constexpr bool kInOneGo = true;
  const float* data;
  int64_t length;
  template <int W>
  struct Chunk {
    const float* at;
    int64_t length;
    HWY_INLINE V Load(int w, int64_t k) const { return hn::LoadU(D(), at + w * length + k); }
    HWY_INLINE void Foresee(int w, int64_t k) const {
      for (int64_t line = 0; line < kBlock; line += 16) hwy::Prefetch(at + (w + 2 * W) * length + k + line);
    }
  };
  template <int W>
  HWY_INLINE Chunk<W> At(int64_t row, int64_t k, int64_t) const {
    return {data + row * length + k, length};
  }
  HWY_INLINE float Number(int64_t row, int64_t k) const { return data[row * length + k]; }
  HWY_INLINE int64_t RowBytes() const { return 4 * length; }
};

struct BFloat16Rows {
  static constexpr bool kInOneGo = true;
  const uint16_t* data;
  int64_t length;
  template <int W>
  struct Chunk {
    const uint16_t* at;
    int64_t length;
    HWY_INLINE V Load(int w, int64_t k) const {
      const hn::Rebind<uint32_t, D> whole;
      const hn::Rebind<uint16_t, D> half;
      return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, at + w * length + k))));
    }
    HWY_INLINE void Foresee(int w, int64_t k) const { hwy::Prefetch(at + (w + 2 * W) * length + k); }
  };
  template <int W>
  HWY_INLINE Chunk<W> At(int64_t row, int64_t k, int64_t) const {
    return {data + row * length + k, length};
  }
  HWY_INLINE float Number(int64_t row, int64_t k) const {
    const uint32_t bits = uint32_t{data[row * length + k]} << 16;
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
  }
  HWY_INLINE int64_t RowBytes() const { return 2 * length; }
};

// A block is a float16 scale and 32 codes; the product of both is exact in float32.
struct Int8Rows {
  static constexpr bool kInOneGo = false;
  const uint8_t* data;
  int64_t length;  // whole blocks
  template <int W>
  struct Chunk {
    const uint8_t* at;
    int64_t row_bytes;
    alignas(64) float scales[W][kChunk];
    HWY_INLINE V Load(int w, int64_t k) const {
      const hn::Rebind<int32_t, D> whole;
      const hn::Rebind<int8_t, D> code;
      const uint8_t* codes = at + w * row_bytes + k / kBlock * (kBlock + 2) + 2 + k % kBlock;
      const V numbers =
          hn::ConvertTo(D(), hn::PromoteTo(whole, hn::LoadU(code, reinterpret_cast<const int8_t*>(codes))));
      return hn::Mul(numbers, hn::Set(D(), scales[w][k / kBlock]));
    }
    HWY_INLINE void Foresee(int w, int64_t k) const {
      hwy::Prefetch(at + (w + 2 * W) * row_bytes + k / kBlock * (kBlock + 2));
    }
  };
  template <int W>
  HWY_INLINE Chunk<W> At(int64_t row, int64_t k, int64_t blocks) const {
    const int64_t row_bytes = RowBytes();
    Chunk<W> chunk;
    chunk.at = data + row * row_bytes + k / kBlock * (kBlock + 2);
    chunk.row_bytes = row_bytes;
    alignas(64) uint16_t halves[kChunk] = {};
    for (int w = 0; w < W; ++w) {
      for (int64_t i = 0; i < blocks; ++i) std::memcpy(&halves[i], chunk.at + w * row_bytes + i * (kBlock + 2), 2);
      const hn::Rebind<hwy::float16_t, D> half;
      for (int64_t i = 0; i < blocks; i += kLanes) {  // those beyond `blocks` are not used
        const auto some = hn::Load(half, reinterpret_cast<const hwy::float16_t*>(halves + i));
        hn::Store(hn::PromoteTo(D(), some), D(), chunk.scales[w] + i);
      }
    }
    return chunk;
  }
  HWY_INLINE float Number(int64_t, int64_t) const { return 0; }  // there is no part of a block
  HWY_INLINE int64_t RowBytes() const { return length / kBlock * (kBlock + 2); }
};

// Asks memory for the next rows while those before are multiplied.
template <class Rows>
HWY_INLINE void Foresee(const Rows& rows, int64_t row, int64_t last) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data);
  const int64_t end = std::min(row + kRows, last) * rows.RowBytes();
  for (int64_t at = row * rows.RowBytes(); at < end; at += 64) hwy::Prefetch(bytes + at);
}

// `W` rows of the matrix times `N` rows of x. A sum is made in one order, whatever N.
template <int W, int N, class Rows>
HWY_INLINE void Dots(const Rows& rows, int64_t row, const float* x, float* y, int64_t stride) {
  const D d;
  const int64_t length = rows.length, vectors = length / kLanes * kLanes;
  V sums[W][N];
  for (int w = 0; w < W; ++w) {
    for (int n = 0; n < N; ++n) sums[w][n] = hn::Zero(d);
  }
  for (int64_t begin = 0; begin < vectors; begin += kChunk * kBlock) {
    const int64_t end = std::min(vectors, begin + kChunk * kBlock);
    const auto chunk = rows.template At<W>(row, begin, (end - begin + kBlock - 1) / kBlock);
    if constexpr (N == 1 && Rows::kInOneGo) {
      for (int w = 0; w < W; ++w) {
        for (int64_t k = begin; k < end; k += kLanes) {
          if ((k - begin) % kBlock == 0) chunk.Foresee(w, k - begin);
          sums[w][0] = hn::MulAdd(chunk.Load(w, k - begin), hn::LoadU(d, x + k), sums[w][0]);
        }
      }
      continue;
    }
    for (int64_t k = begin; k < end; k += kLanes) {
      V columns[N];
      for (int n = 0; n < N; ++n) columns[n] = hn::LoadU(d, x + n * length + k);
      for (int w = 0; w < W; ++w) {
        if ((k - begin) % kBlock == 0) chunk.Foresee(w, k - begin);
        const V numbers = chunk.Load(w, k - begin);
        for (int n = 0; n < N; ++n) sums[w][n] = hn::MulAdd(numbers, columns[n], sums[w][n]);
      }
    }
  }
  for (int n = 0; n < N; ++n) {
    float* out = y + n * stride + row;
    if constexpr (W == 4) {
      StoreSums(sums[0][n], sums[1][n], sums[2][n], sums[3][n], out);
    } else {
      for (int w = 0; w < W; ++w) out[w] = Sum(sums[w][n]);
    }
    for (int64_t k = vectors; k < length; ++k) {
      for (int w = 0; w < W; ++w) out[w] += rows.Number(row + w, k) * x[n * length + k];
    }
  }
}

template <int W, class Rows>
HWY_INLINE void DotsOfAll(const Rows& rows, int64_t row, const float* x, int64_t count, float* y, int64_t stride) {
  int64_t n = 0;
  for (; n + kColumns <= count; n += kColumns)
    Dots<W, kColumns>(rows, row, x + n * rows.length, y + n * stride, stride);
  for (; n < count; ++n) Dots<W, 1>(rows, row, x + n * rows.length, y + n * stride, stride);
}

template <class Rows>
void InFull(const Rows& rows, int64_t first, int64_t last, float* out) {
  const int64_t vectors = rows.length / kLanes * kLanes;
  for (int64_t row = first; row < last; ++row, out += rows.length) {
    for (int64_t begin = 0; begin < vectors; begin += kChunk * kBlock) {
      const int64_t end = std::min(vectors, begin + kChunk * kBlock);
      const auto chunk = rows.template At<1>(row, begin, (end - begin + kBlock - 1) / kBlock);
      for (int64_t k = begin; k < end; k += kLanes) hn::StoreU(chunk.Load(0, k - begin), D(), out + k);
    }
    for (int64_t k = vectors; k < rows.length; ++k) out[k] = rows.Number(row, k);
  }
}

template <class Rows>
void ProductOf(const Rows& rows, int64_t first, int64_t last, const float* x, int64_t count, float* y, int64_t stride) {
  int64_t row = first;
  if (count <= kColumns || std::is_same_v<Rows, Float32Rows>) {
    for (; row + kRows <= last; row += kRows) DotsOfAll<kRows>(rows, row, x, count, y, stride);
    for (; row < last; ++row) DotsOfAll<1>(rows, row, x, count, y, stride);
    return;
  }
  // Made float32 once for all rows of x.
  thread_local std::vector<float> panel;
  panel.resize(static_cast<size_t>(kRows * rows.length));
  for (; row < last; row += kRows) {
    const int64_t end = std::min<int64_t>(row + kRows, last);
    InFull(rows, row, end, panel.data());
    Foresee(rows, row + kRows, last);
    ProductOf(Float32Rows{panel.data(), rows.length}, 0, end - row, x, count, y + row, stride);
  }
}

// Calls `work` with the reader of the matrix's type.
template <class Work>
HWY_INLINE void WithRows(const KeptRows& weight, const Work& work) {
  switch (weight.type) {
    case KeptRows::Type::float32: return work(Float32Rows{static_cast<const float*>(weight.data), weight.length});
    case KeptRows::Type::bfloat16: return work(BFloat16Rows{static_cast<const uint16_t*>(weight.data), weight.length});
    case KeptRows::Type::int8: return work(Int8Rows{static_cast<const uint8_t*>(weight.data), weight.length});
  }
}

void Product(const KeptRows& weight, int64_t first, int64_t last, const float* x, int64_t count, float* y,
             int64_t stride) {
  WithRows(weight, [&](const auto& rows) HWY_ATTR { ProductOf(rows, first, last, x, count, y, stride); });
}

void InFullOf(const KeptRows& weight, int64_t first, int64_t last, float* out) {
  WithRows(weight, [&](const auto& rows) HWY_ATTR { InFull(rows, first, last, out); });
}

void RmsNorm(const float* x, const float* weight, int64_t size, double epsilon, float* out) {
  const D d;
  V squares[2] = {hn::Zero(d), hn::Zero(d)};
  int64_t k = 0;
  for (; k + 2 * kLanes <= size; k += 2 * kLanes) {
    for (int i = 0; i < 2; ++i) {
      const V v = hn::LoadU(d, x + k + i * kLanes);
      squares[i] = hn::MulAdd(v, v, squares[i]);
    }
  }
  double sum = Sum(hn::Add(squares[0], squares[1]));
  for (; k < size; ++k) sum += static_cast<double>(x[k]) * x[k];
  const auto scale = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(size) + epsilon));
  const V by = hn::Set(d, scale);
  for (k = 0; k + kLanes <= size; k += kLanes)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + k), by), hn::LoadU(d, weight + k)), d, out + k);
  for (; k < size; ++k) out[k] = x[k] * scale * weight[k];
}

// out[w] = the dot product of a query with the key w of W, `stride` numbers from each to the next.
template <int W>
HWY_INLINE void KeyDots(const float* query, const float* keys, int64_t stride, int64_t size, float* out) {
  V sums[W];
  for (int w = 0; w < W; ++w) sums[w] = hn::Zero(D());
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    const V q = hn::LoadU(D(), query + k);
    for (int w = 0; w < W; ++w) sums[w] = hn::MulAdd(q, hn::LoadU(D(), keys + w * stride + k), sums[w]);
  }
  if constexpr (W == 4) {
    StoreSums(sums[0], sums[1], sums[2], sums[3], out);
  } else {
    for (int w = 0; w < W; ++w) out[w] = Sum(sums[w]);
  }
  for (; k < size; ++k) {
    for (int w = 0; w < W; ++w) out[w] += query[k] * keys[w * stride + k];
  }
}

// Scores become probabilities but for their sum, which is returned.
float Exponentials(float* scores, int64_t count) {
  const D d;
  float largest = scores[0];
  for (int64_t s = 1; s < count; ++s) largest = std::max(largest, scores[s]);
  V sums = hn::Zero(d);
  int64_t s = 0;
  for (; s + kLanes <= count; s += kLanes) {
    const V power = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + s), hn::Set(d, largest)));
    sums = hn::Add(sums, power);
    hn::StoreU(power, d, scores + s);
  }
  float sum = Sum(sums);
  for (; s < count; ++s) sum += scores[s] = std::exp(scores[s] - largest);
  return sum;
}

// `C` vectors of out[g] = sum_s weight[g][s] values[s] for N of the group, from number k on.
template <int N, int C>
HWY_INLINE void MixVectors(const float* weights, const HeadCache& cache, int64_t size, const float* inverse, int64_t k,
                           float* out) {
  V sums[N][C];
  for (int n = 0; n < N; ++n) {
    for (int c = 0; c < C; ++c) sums[n][c] = hn::Zero(D());
  }
  for (int64_t s = 0; s < cache.seen; ++s) {
    const float* value = cache.values + s * cache.stride + k;
    V values[C];
    for (int c = 0; c < C; ++c) values[c] = hn::LoadU(D(), value + c * kLanes);
    for (int n = 0; n < N; ++n) {
      const V weight = hn::Set(D(), weights[n * cache.seen + s]);
      for (int c = 0; c < C; ++c) sums[n][c] = hn::MulAdd(weight, values[c], sums[n][c]);
    }
  }
  for (int n = 0; n < N; ++n) {
    for (int c = 0; c < C; ++c)
      hn::StoreU(hn::Mul(sums[n][c], hn::Set(D(), inverse[n])), D(), out + n * size + k + c * kLanes);
  }
}

template <int N>
HWY_INLINE void Mix(const float* weights, const HeadCache& cache, int64_t size, const float* inverse, float* out) {
  constexpr int kVectors = kLanes >= 16 ? 4 : 2;  // as many sums as there are registers for
  int64_t k = 0;
  for (; k + kVectors * kLanes <= size; k += kVectors * kLanes)
    MixVectors<N, kVectors>(weights, cache, size, inverse, k, out);
  for (; k + kLanes <= size; k += kLanes) MixVectors<N, 1>(weights, cache, size, inverse, k, out);
  for (; k < size; ++k) {
    for (int n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t s = 0; s < cache.seen; ++s) sum += weights[n * cache.seen + s] * cache.values[s * cache.stride + k];
      out[n * size + k] = sum * inverse[n];
    }
  }
}

void Attend(const float* query, int64_t group, int64_t size, const HeadCache& cache, float scale, float softcap,
            float* scores, float* out) {
  int64_t s = 0;
  for (; s + 4 <= cache.seen; s += 4) {
    for (int64_t g = 0; g < group; ++g)
      KeyDots<4>(query + g * size, cache.keys + s * cache.stride, cache.stride, size, scores + g * cache.seen + s);
  }
  for (; s < cache.seen; ++s) {
    for (int64_t g = 0; g < group; ++g)
      KeyDots<1>(query + g * size, cache.keys + s * cache.stride, cache.stride, size, scores + g * cache.seen + s);
  }
  for (int64_t i = 0; i < group * cache.seen; ++i) {
    const float score = scores[i] * scale;
    scores[i] = softcap > 0 ? std::tanh(score / softcap) * softcap : score;
  }
  for (int64_t g = 0; g < group;) {
    const int64_t count = std::min<int64_t>(group - g, 4);
    float* const weights = scores + g * cache.seen;
    float inverse[4];
    for (int64_t n = 0; n < count; ++n) inverse[n] = 1 / Exponentials(weights + n * cache.seen, cache.seen);
    switch (count) {
      case 1: Mix<1>(weights, cache, size, inverse, out + g * size); break;
      case 2: Mix<2>(weights, cache, size, inverse, out + g * size); break;
      case 3: Mix<3>(weights, cache, size, inverse, out + g * size); break;
      default: Mix<4>(weights, cache, size, inverse, out + g * size);
    }
    g += count;
  }
}

StepKernels Kernels() { return {&Product, &InFullOf, &RmsNorm, &Attend}; }

}  // namespace HWY_NAMESPACE
}  // namespace kullback::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kullback::detail {

HWY_EXPORT(Kernels);

const StepKernels& step_kernels() {
  static const StepKernels kernels = HWY_DYNAMIC_DISPATCH(Kernels)();
  return kernels;
}

}  // namespace kullback::detail
#endif  // HWY_ONCE
