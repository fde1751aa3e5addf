#include "kullback/divergence/head_walk.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kullback/base/error.h"
#include "kullback/divergence/definition.h"
#include "kullback/divergence/head_rows.h"

namespace kullback::detail {

using at::Tensor;

namespace {

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Offsets of matrices in working memory are multiples of it.
int64_t aligned(int64_t bytes) { return divided_up(bytes, 64) * 64; }

/// The weight or the hidden states are of another type than the products.
bool converts(const Rows& rows, at::ScalarType type) {
  return rows.weight.defined() && rows.weight.scalar_type() != type;
}

}  // namespace

Blocking choose_blocking(const HeadInput& input, Leave leave, int64_t memory) {
  // Measured on 2 AVX-512 cores at (512, 576, 49152): the logits' product takes 1.7 times as long in blocks of 64 tokens as
  // in one of 512, and 1.2 times in blocks of 128 or of 256; those for the gradients 1.5 times in blocks of 64, 1.15 of 128
  // and 1.1 of 256. So the policy's rows, which all products share, go in as large blocks as there is room for, up to where
  // no more is won; the reference's, which are needed once, in parts of 128.
  constexpr int64_t enough_tokens = 512, enough_reference_tokens = 128;
  constexpr int64_t float64_rows = 6;  // that a divergence without vector code, or of large ratios, holds a thread
  const bool two = input.reference.has_value();
  const bool converting = converts(input.policy, input.type) || (two && converts(*input.reference, input.type));
  int64_t hidden_width = input.policy.hidden.size(1);
  if (two) hidden_width = std::max(hidden_width, input.reference->hidden.size(1));

  int64_t reserved = 0;
  const int64_t tile_bytes = std::min<int64_t>(8 << 20, memory / 8);
  if (converting) reserved += 2 * tile_bytes;  // of the weight, and of its gradient
  for (const RowDivergence& d : input.request.divergences) {
    const auto& term = d.divergence.definition().term(d.direction);
    if (!term || term->magnifies())
      reserved = std::max(reserved, at::get_num_threads() * float64_rows * 8 * input.width);
  }
  const int64_t row_bytes =
      std::max<int64_t>(1, input.width * bytes_of(input.type) + (converting ? 2 * hidden_width * 4 : 0));
  const int64_t rows = std::max<int64_t>(2, (memory - reserved) / row_bytes);

  const int64_t enough = leave == Leave::nothing ? enough_tokens : rows;
  Blocking blocking{};
  blocking.weight_rows = std::clamp<int64_t>(tile_bytes / std::max<int64_t>(1, hidden_width * 4), 64, 1 << 16);
  if (!two)
    blocking.tokens = std::min(enough, rows);
  else if (leave == Leave::rows)
    blocking.tokens = rows / 2;
  else
    blocking.tokens = std::min(enough, rows - std::min(enough_reference_tokens, rows / 2));
  const int64_t blocks = std::max<int64_t>(1, divided_up(input.tokens, blocking.tokens));
  // What a walk leaves of its last block should be much; else blocks should be alike.
  if (leave == Leave::nothing || blocks == 1) blocking.tokens = std::max<int64_t>(1, divided_up(input.tokens, blocks));
  blocking.reference_tokens = blocking.tokens;
  if (two && leave != Leave::rows) {
    const int64_t parts = divided_up(blocking.tokens, rows - blocking.tokens);
    blocking.reference_tokens = divided_up(blocking.tokens, parts);
  }
  return blocking;
}

HeadWalk::HeadWalk(HeadInput input, const HeadSettings& settings, Leave leave, int64_t reserved)
    : input_(std::move(input)), leave_(leave), memory_(settings.memory - reserved) {
  if (settings.memory < (16 << 20)) fail("the head's memory is {} bytes and must be at least 16 MiB", settings.memory);
  blocking_ = choose_blocking(input_, leave_, memory_);
}

/// Rows of some tokens that stand one after another.
struct HeadWalk::Block {
  int64_t first, count;
  Tensor policy;     // [B,width]
  Tensor reference;  // [B,width] or undefined
};

/// What all rows of a walk have in common.
template <class T>
struct HeadWalk::Pass {
  RowTransforms<T> transforms;
  const T* scores;
  const int64_t* labels;
  Sharing sharing;
  bool statistics;   // they are made, and not only used
  bool transformed;  // the rows have been
  std::span<const Upstream> upstreams;
  RowStates& states;
  const StatisticsOut& out;
};

namespace {

/// Calls use(first row, the rows in the computing type) for all of the weight's real rows: at once, or tile by tile where
/// they must be converted.
template <class Use>
void with_weight(const Tensor& weight, int64_t vocabulary, at::ScalarType type, int64_t tile, Use use) {
  if (weight.scalar_type() == type) {
    use(0, weight.narrow(0, 0, vocabulary));
    return;
  }
  for (int64_t first = 0; first < vocabulary; first += tile) {
    use(first, weight.narrow(0, first, std::min(tile, vocabulary - first)).to(type));
  }
}

template <class T>
Transform<T> transform_of(const Rows& rows, Tensor& bias, at::ScalarType type) {
  if (rows.bias.defined()) bias = rows.bias.detach().to(type).contiguous();
  return {bias.defined() ? bias.const_data_ptr<T>() : nullptr, rows.softcap, rows.temperature};
}

StatisticsOut pointers(HeadStatistics& s) {
  StatisticsOut out;
  const auto of = [](Tensor& t) { return t.defined() ? t.data_ptr<double>() : nullptr; };
  out.logps = of(s.logps);
  out.logsumexp = of(s.logsumexp);
  out.entropy = of(s.entropy);
  out.expected = of(s.expected);
  out.top_logps = of(s.top_logps);
  for (Tensor& d : s.divergences) out.divergences.push_back(of(d));
  return out;
}

/// Multiplies rows of gradients for a weight of 1 by their weights.
template <class T>
void weigh(const Tensor& basis, const double* weights) {
  const int64_t width = basis.size(1);
  T* const rows = basis.data_ptr<T>();
  at::parallel_for(0, basis.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = rows + t * width;
      if (weights[t] == 0)
        std::fill_n(row, width, T(0));  // even where the basis is NaN
      else if (weights[t] != 1)
        law_kernels<T>().combine(row, row, width, weights[t], 0, row);
    }
  });
}

}  // namespace

HeadStatistics HeadWalk::statistics(RowStates& states, std::span<const Upstream> upstreams,
                                    std::span<HeadGradients> gradients) {
  const HeadRequest& request = input_.request;
  const auto zeros = [&](at::IntArrayRef shape) { return at::zeros(shape, at::kDouble); };
  const int64_t tokens = input_.tokens;
  HeadStatistics s;
  if (request.logps) s.logps = zeros({tokens});
  if (request.logsumexp) s.logsumexp = zeros({tokens});
  if (request.entropy) s.entropy = zeros({tokens});
  if (request.scores.defined()) s.expected = zeros({tokens});
  const auto count = static_cast<size_t>(tokens);
  if (request.top_k > 0) {
    s.top_logps = zeros({tokens, request.top_k});
    s.top_ids = states.top_ids = at::zeros({tokens, request.top_k}, at::kLong);
  }
  states.policy.resize(count);
  if (input_.reference) states.reference.resize(count);
  states.entropy.resize(request.entropy ? count : 0);
  states.expected.resize(s.expected.defined() ? count : 0);
  states.divergences.resize(request.divergences.size());
  for (auto& d : states.divergences) {
    d.value.assign(count, 0);
    d.basis.assign(count, 0);
    s.divergences.push_back(zeros({tokens}));
  }
  if (input_.type == at::kDouble)
    walk<double>(states, &s, upstreams, gradients);
  else
    walk<float>(states, &s, upstreams, gradients);
  return s;
}

void HeadWalk::gradients(RowStates& states, const Upstream& upstream, HeadGradients& gradients) {
  const std::span<const Upstream> upstreams(&upstream, 1);
  const std::span<HeadGradients> wanted(&gradients, 1);
  if (input_.type == at::kDouble)
    walk<double>(states, nullptr, upstreams, wanted);
  else
    walk<float>(states, nullptr, upstreams, wanted);
}

template <class T>
void HeadWalk::walk(RowStates& states, HeadStatistics* statistics, std::span<const Upstream> upstreams,
                    std::span<HeadGradients> gradients) {
  const int64_t most = std::min(blocking_.tokens, input_.tokens);
  const int64_t most_of_reference = input_.reference ? std::min(blocking_.reference_tokens, most) : 0;
  const int64_t reference_at = aligned(most * input_.width * bytes_of(input_.type));
  const bool begun = !statistics && left_;  // the last block's rows are where the walk before has left them
  WorkingMemory memory =
      begun ? std::exchange(left_, {})
            : WorkingMemory(reference_at + most_of_reference * input_.width * bytes_of(input_.type), memory_);
  const Tensor policy_space = memory.matrix(0, most, input_.width, input_.type);
  const Tensor reference_space = memory.matrix(reference_at, most_of_reference, input_.width, input_.type);

  Tensor policy_bias, reference_bias;
  RowTransforms<T> transforms{transform_of<T>(input_.policy, policy_bias, input_.type), {}};
  if (input_.reference) transforms.reference = transform_of<T>(*input_.reference, reference_bias, input_.type);
  const HeadRequest& request = input_.request;
  const StatisticsOut out = statistics ? pointers(*statistics) : StatisticsOut{};
  const Sharing sharing = statistics && upstreams.size() == 1
                              ? choose_sharing(request, upstreams[0], input_.policy.softcap > 0)
                              : Sharing::none;
  Pass<T> pass{transforms,
               request.scores.defined() ? request.scores.const_data_ptr<T>() : nullptr,
               request.logps ? request.labels.const_data_ptr<int64_t>() : nullptr,
               Sharing::none,
               statistics != nullptr,
               /*transformed=*/false,
               upstreams,
               states,
               out};

  // Statistics are walked from the first block to the last, gradients alone back from there; the first may be smaller.
  const int64_t blocks = most == 0 ? 0 : divided_up(input_.tokens, most);
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t index = statistics ? step : blocks - 1 - step;
    const int64_t last = input_.tokens - (blocks - 1 - index) * most, first = std::max<int64_t>(0, last - most);
    const bool there = begun && step == 0;
    const bool with_gradients = !upstreams.empty() && (!statistics || leave_ != Leave::basis || index == blocks - 1);
    pass.upstreams = with_gradients ? upstreams : std::span<const Upstream>{};
    pass.sharing = with_gradients ? sharing : Sharing::none;
    pass.transformed = there;
    const Tensor policy =
        there ? policy_space.narrow(0, 0, last - first)
              : block_logits(input_.policy, input_.vocabulary, first, policy_space.narrow(0, 0, last - first));
    if (there && leave_ == Leave::basis) {
      weigh<T>(policy, upstreams[0].divergences[0] + first);
    } else {
      const int64_t part = input_.reference ? most_of_reference : last - first;
      for (int64_t from = first; from < last; from += part) {
        Block block{from, std::min(part, last - from), {}, {}};
        block.policy = policy.narrow(0, from - first, block.count);
        if (input_.reference) {
          block.reference = reference_space.narrow(0, 0, block.count);
          if (!there) block_logits(*input_.reference, input_.reference_vocabulary, from, block.reference);
        }
        rows(block, pass);
        if (with_gradients && gradients.size() == 2)
          products(block.reference, from, step == 0 && from == first, gradients[1]);
      }
    }
    if (with_gradients && !gradients.empty()) products(policy, first, step == 0, gradients[0]);
  }
  if (statistics && leave_ != Leave::nothing) left_ = std::move(memory);
}

/// Fills `space` [B,width] with the logits of the tokens from `first` on: products with the head, or copies of those given;
/// -inf beyond the vocabulary.
Tensor HeadWalk::block_logits(const Rows& rows, int64_t vocabulary, int64_t first, const Tensor& space) const {
  const Tensor hidden = rows.hidden.narrow(0, first, space.size(0));
  const Tensor logits = space.narrow(1, 0, vocabulary);
  if (rows.weight.defined()) {
    const Tensor converted = hidden.to(input_.type);
    with_weight(rows.weight, vocabulary, input_.type, blocking_.weight_rows, [&](int64_t row, const Tensor& weight) {
      Tensor part = logits.narrow(1, row, weight.size(0));
      at::mm_out(part, converted, weight.t());
    });
  } else {
    logits.copy_((rows.make ? rows.make(hidden) : hidden).narrow(1, 0, vocabulary));
  }
  if (vocabulary < input_.width)
    space.narrow(1, vocabulary, input_.width - vocabulary).fill_(-std::numeric_limits<double>::infinity());
  return space;
}

/// One pass over each row of a block. Its gradients take the rows' places: a second one that of the reference.
template <class T>
void HeadWalk::rows(const Block& block, const Pass<T>& pass) const {
  T* const policy = block.policy.data_ptr<T>();
  T* const reference = block.reference.defined() ? block.reference.data_ptr<T>() : nullptr;
  at::parallel_for(0, block.count, 1, [&](int64_t begin, int64_t end) {
    std::vector<RowGradient<T>> wanted;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token = block.first + t;
      const Row<T> row{token,
                       input_.vocabulary,
                       input_.reference_vocabulary,
                       input_.width,
                       policy + t * input_.width,
                       reference ? reference + t * input_.width : nullptr,
                       pass.scores,
                       pass.labels ? pass.labels[token] : -100};
      if (pass.statistics)
        row_statistics(row, pass.transforms, input_.request, pass.sharing, pass.states, pass.out);
      else if (!pass.transformed)
        transform_rows(row, pass.transforms);
      if (pass.upstreams.empty()) continue;
      wanted.clear();
      for (const Upstream& upstream : pass.upstreams)
        wanted.push_back({&upstream, wanted.empty() ? row.policy : row.reference});
      row_gradients<T>(row, pass.transforms, input_.request, pass.sharing, pass.states, pass.out, wanted);
    }
  });
}

/// The gradients of hidden states, weight and bias from those of the logits of the tokens from `first` on; sums begin anew
/// where `begin` says so.
void HeadWalk::products(const Tensor& logits, int64_t first, bool begin, HeadGradients& g) const {
  const int64_t count = logits.size(0);
  const Tensor real = logits.narrow(1, 0, input_.vocabulary);
  if (input_.from_logits()) {
    if (g.hidden.defined()) g.hidden.narrow(0, first, count).narrow(1, 0, input_.vocabulary).copy_(real);
    return;
  }
  if (g.bias.defined()) g.bias.narrow(0, 0, input_.vocabulary).add_(real.sum(0));
  Tensor hidden_sum;  // [B,D] in the computing type
  if (g.hidden.defined()) {
    hidden_sum = g.hidden.narrow(0, first, count);
    if (g.hidden.scalar_type() != input_.type) hidden_sum = at::empty(hidden_sum.sizes(), input_.type);
  }
  const Tensor hidden = g.weight.defined() ? input_.policy.hidden.narrow(0, first, count).to(input_.type) : Tensor();
  const auto add_tile = [&](int64_t row, const Tensor& weight) {
    const Tensor part = real.narrow(1, row, weight.size(0));
    if (hidden_sum.defined()) {
      if (row == 0)
        at::mm_out(hidden_sum, part, weight);
      else
        hidden_sum.addmm_(part, weight);
    }
    if (!g.weight.defined()) return;
    Tensor rows = g.weight.narrow(0, row, weight.size(0));
    if (rows.scalar_type() != input_.type) {
      const Tensor sum = at::mm(part.t(), hidden);
      rows.copy_(begin ? sum : sum.add_(rows));
    } else if (begin) {
      at::mm_out(rows, part.t(), hidden);
    } else {
      rows.addmm_(part.t(), hidden);
    }
  };
  with_weight(input_.policy.weight, input_.vocabulary, input_.type, blocking_.weight_rows, add_tile);
  if (hidden_sum.defined() && g.hidden.scalar_type() != input_.type) g.hidden.narrow(0, first, count).copy_(hidden_sum);
}

}  // namespace kullback::detail
