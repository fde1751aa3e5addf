#include "kullback/divergence/head_walk.h"

#include <algorithm>
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kullback/base/error.h"
#include "kullback/divergence/head_rows.h"

namespace kullback::detail {

using at::Tensor;

Blocking choose_blocking(int64_t tokens, int64_t vocabulary, int64_t width, int64_t rows_held, int64_t bytes_a_number,
                         int64_t memory) {
  // Measured on 2 cores: the products lose nothing from 256 tokens on, and a tenth to a third below 128.
  constexpr int64_t enough_tokens = 512;
  constexpr int64_t tile_bytes = 8 << 20;
  const int64_t row_bytes = std::max<int64_t>(1, vocabulary * bytes_a_number * rows_held);
  const int64_t most = std::clamp<int64_t>((memory - tile_bytes) / row_bytes, 1, enough_tokens);
  const int64_t blocks = (tokens + most - 1) / std::max<int64_t>(most, 1);
  const int64_t even = blocks > 0 ? (tokens + blocks - 1) / blocks : 1;
  return {std::max<int64_t>(1, even),
          std::clamp<int64_t>(tile_bytes / std::max<int64_t>(1, width * bytes_a_number), 64, 1 << 16)};
}

Upstream upstream_of(const HeadStatistics& weights, const HeadRequest& request, int64_t tokens) {
  Upstream up;
  const auto take = [&](const Tensor& w, const char* what, at::IntArrayRef shape) -> const double* {
    if (!w.defined()) return nullptr;
    if (w.sizes() != shape) {
      fail("the weight of {} has shape {} and must have {}", what, fmt::join(w.sizes(), "x"), fmt::join(shape, "x"));
    }
    up.kept.push_back(w.detach().to(at::kDouble).contiguous());
    return up.kept.back().const_data_ptr<double>();
  };
  up.logps = take(weights.logps, "logps", {tokens});
  up.logsumexp = take(weights.logsumexp, "logsumexp", {tokens});
  up.entropy = take(weights.entropy, "entropy", {tokens});
  up.expected = take(weights.expected, "the expected score", {tokens});
  up.top_logps = take(weights.top_logps, "top_logps", {tokens, request.top_k});
  for (const Tensor& w : weights.divergences) up.divergences.push_back(take(w, "a divergence", {tokens}));
  if (up.divergences.size() > request.divergences.size()) {
    fail("{} weights for {} divergences", up.divergences.size(), request.divergences.size());
  }
  const auto asked = [](const double* weight, bool wanted, const char* what) {
    if (weight && !wanted) fail("{} has a weight and is not among the statistics asked for", what);
  };
  asked(up.logps, request.logps, "logps");
  asked(up.logsumexp, request.logsumexp, "logsumexp");
  asked(up.entropy, request.entropy, "entropy");
  asked(up.expected, request.scores.defined(), "the expected score");
  asked(up.top_logps, request.top_k > 0, "top_logps");
  return up;
}

namespace {

int64_t rows_of_head(const Rows& rows) { return rows.weight.defined() ? rows.weight.size(0) : rows.hidden.size(1); }

int64_t real_vocabulary(const Rows& rows) { return rows.vocabulary > 0 ? rows.vocabulary : rows_of_head(rows); }

/// Checks one model's rows; `whose` names them in errors.
void check_rows(const Rows& rows, const char* whose) {
  if (!rows.hidden.defined() || rows.hidden.dim() != 2) fail("the {}'s hidden states must be a matrix [N,D]", whose);
  const auto type = rows.hidden.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16) {
    fail("the {}'s hidden states are of type {} and must be float32, bfloat16 or float64", whose, at::toString(type));
  }
  if (rows.weight.defined()) {
    if (rows.weight.dim() != 2 || rows.weight.size(1) != rows.hidden.size(1)) {
      fail("the {}'s head has shape {} and must be [V,{}], as wide as its hidden states", whose,
           fmt::join(rows.weight.sizes(), "x"), rows.hidden.size(1));
    }
    if (rows.weight.scalar_type() != type) {
      fail("the {}'s head is of type {} and its hidden states of type {}", whose,
           at::toString(rows.weight.scalar_type()), at::toString(type));
    }
  } else if (rows.bias.defined()) {
    fail("the {}'s rows are logits, which take no bias", whose);
  }
  if (rows.bias.defined() && (rows.bias.dim() != 1 || rows.bias.size(0) != rows_of_head(rows))) {
    fail("the {}'s bias has shape {} and must have {} entries", whose, fmt::join(rows.bias.sizes(), "x"),
         rows_of_head(rows));
  }
  for (const Tensor& t : {rows.hidden, rows.weight, rows.bias}) {
    if (t.defined() && !t.is_cpu()) fail("the {}'s rows are on {}; the head runs on the CPU", whose, t.device().str());
  }
  if (!(rows.temperature > 0)) fail("the {}'s temperature is {} and must be > 0", whose, rows.temperature);
  if (!(rows.softcap >= 0)) fail("the {}'s soft-cap is {} and must be >= 0", whose, rows.softcap);
  if (rows.vocabulary < 0 || rows.vocabulary > rows_of_head(rows)) {
    fail("the {}'s vocabulary is {} and its head has {} rows", whose, rows.vocabulary, rows_of_head(rows));
  }
  if (real_vocabulary(rows) == 0) fail("the {}'s vocabulary is empty", whose);
}

void check_request(const HeadRequest& request, int64_t tokens, int64_t vocabulary) {
  if (request.logps && !request.labels.defined()) fail("log-probabilities are asked for without labels");
  if (request.labels.defined() && request.logps) {
    if (request.labels.scalar_type() != at::kLong || request.labels.sizes() != at::IntArrayRef{tokens}) {
      fail("the labels must be {} int64 numbers, and are {} of type {}", tokens, fmt::join(request.labels.sizes(), "x"),
           at::toString(request.labels.scalar_type()));
    }
    const Tensor labels = request.labels.contiguous();
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t label = labels.const_data_ptr<int64_t>()[t];
      if (label != -100 && (label < 0 || label >= vocabulary))
        fail("label {} of token {} is outside the vocabulary of {}", label, t, vocabulary);
    }
  }
  if (request.scores.defined() && request.scores.sizes() != at::IntArrayRef{vocabulary}) {
    fail("the scores have shape {} and must have {} entries, one a token of the vocabulary",
         fmt::join(request.scores.sizes(), "x"), vocabulary);
  }
  if (request.top_k < 0 || request.top_k > vocabulary)
    fail("top_k is {} and must be between 0 and the vocabulary of {}", request.top_k, vocabulary);
}

}  // namespace

HeadWalk::HeadWalk(Rows policy, std::optional<Rows> reference, HeadRequest request, const HeadSettings& settings)
    : policy_(std::move(policy)), reference_(std::move(reference)), request_(std::move(request)) {
  check_rows(policy_, "policy");
  tokens_ = policy_.hidden.size(0);
  vocabulary_ = real_vocabulary(policy_);
  type_ = policy_.hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (request_.divergences.empty())
    reference_.reset();
  else if (!reference_)
    fail("a divergence between rows needs the reference's rows");
  int64_t width = policy_.hidden.size(1);
  if (reference_) {
    check_rows(*reference_, "reference");
    if (reference_->hidden.size(0) != tokens_) {
      fail("the policy has {} rows and the reference {}", tokens_, reference_->hidden.size(0));
    }
    if (real_vocabulary(*reference_) != vocabulary_) {
      fail("the policy's vocabulary is {} and the reference's {}; name the common part with `vocabulary`", vocabulary_,
           real_vocabulary(*reference_));
    }
    if ((reference_->hidden.scalar_type() == at::kDouble) != (type_ == at::kDouble)) {
      fail("the policy's rows are of type {} and the reference's of type {}",
           at::toString(policy_.hidden.scalar_type()), at::toString(reference_->hidden.scalar_type()));
    }
    width = std::max(width, reference_->hidden.size(1));
  }
  check_request(request_, tokens_, vocabulary_);
  if (settings.memory < (16 << 20)) fail("the head's memory is {} bytes and must be at least 16 MiB", settings.memory);
  if (request_.labels.defined()) request_.labels = request_.labels.contiguous();
  if (request_.scores.defined()) request_.scores = request_.scores.detach().to(type_).contiguous();
  blocking_ =
      choose_blocking(tokens_, vocabulary_, width, reference_ ? 2 : 1, type_ == at::kDouble ? 8 : 4, settings.memory);
}

/// A block of tokens with its logits.
struct HeadWalk::Block {
  int64_t first, count;
  Tensor hidden;     // [B,D] in the computing type; undefined for logits
  Tensor policy;     // [B,V]
  Tensor reference;  // [B,V] or undefined
};

namespace {

/// An empty tensor on large pages where the system has them: touching new memory 4 KiB at a time costs as much as a pass.
Tensor room(at::IntArrayRef shape, const at::TensorOptions& options) {
  Tensor t = at::empty(shape, options);
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t page = 2 << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(t.data_ptr()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(t.data_ptr()) + t.nbytes()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return t;
}

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

/// A block's logits in `space` [>=B,V]: products with the head, or copies of the logits given.
Tensor block_logits(const Rows& rows, const Tensor& hidden, int64_t vocabulary, int64_t tile, const Tensor& space) {
  Tensor logits = space.narrow(0, 0, hidden.size(0));
  if (!rows.weight.defined()) {
    logits.copy_(hidden.narrow(1, 0, vocabulary));
    return logits;
  }
  with_weight(rows.weight, vocabulary, space.scalar_type(), tile, [&](int64_t first, const Tensor& weight) {
    Tensor part = logits.narrow(1, first, weight.size(0));
    at::mm_out(part, hidden, weight.t());
  });
  return logits;
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

}  // namespace

HeadStatistics HeadWalk::statistics(RowStates& states, std::span<const Upstream> upstreams,
                                    std::span<HeadGradients> gradients) {
  const auto numbers = at::TensorOptions(at::kDouble);
  HeadStatistics s;
  if (request_.logps) s.logps = at::zeros({tokens_}, numbers);
  if (request_.logsumexp) s.logsumexp = at::zeros({tokens_}, numbers);
  if (request_.entropy) s.entropy = at::zeros({tokens_}, numbers);
  if (request_.scores.defined()) s.expected = at::zeros({tokens_}, numbers);
  const size_t count = static_cast<size_t>(tokens_);
  if (request_.top_k > 0) {
    s.top_logps = at::zeros({tokens_, request_.top_k}, numbers);
    s.top_ids = states.top_ids = at::zeros({tokens_, request_.top_k}, at::kLong);
  }
  states.policy.resize(count);
  if (reference_) states.reference.resize(count);
  states.entropy.resize(request_.entropy ? count : 0);
  states.expected.resize(s.expected.defined() ? count : 0);
  states.divergences.resize(request_.divergences.size());
  for (auto& d : states.divergences) {
    d.value.assign(count, 0);
    d.basis.assign(count, 0);
    s.divergences.push_back(at::zeros({tokens_}, numbers));
  }
  if (type_ == at::kDouble)
    walk<double>(states, &s, upstreams, gradients);
  else
    walk<float>(states, &s, upstreams, gradients);
  return s;
}

void HeadWalk::gradients(RowStates& states, const Upstream& upstream, HeadGradients& gradients) {
  const std::span<const Upstream> upstreams(&upstream, 1);
  const std::span<HeadGradients> wanted(&gradients, 1);
  if (type_ == at::kDouble)
    walk<double>(states, nullptr, upstreams, wanted);
  else
    walk<float>(states, nullptr, upstreams, wanted);
}

template <class T>
void HeadWalk::walk(RowStates& states, HeadStatistics* statistics, std::span<const Upstream> upstreams,
                    std::span<HeadGradients> gradients) {
  const auto options = at::TensorOptions(type_);
  const int64_t most = std::min(blocking_.tokens, tokens_);
  // Without statistics the blocks are walked from the last, whose logits the walk before has left where they were.
  const bool begun = !statistics && policy_space_.defined();
  Tensor policy_space = begun ? std::move(policy_space_) : room({most, vocabulary_}, options);
  Tensor reference_space = !reference_ ? Tensor()
                           : begun     ? std::move(reference_space_)
                                       : room({most, vocabulary_}, options);
  policy_space_ = reference_space_ = Tensor();
  Tensor policy_bias, reference_bias;
  RowTransforms<T> transforms{transform_of<T>(policy_, policy_bias, type_), {}};
  if (reference_) transforms.reference = transform_of<T>(*reference_, reference_bias, type_);
  const StatisticsOut out = statistics ? pointers(*statistics) : StatisticsOut{};
  const T* scores = request_.scores.defined() ? request_.scores.const_data_ptr<T>() : nullptr;
  const int64_t* labels = request_.logps ? request_.labels.const_data_ptr<int64_t>() : nullptr;
  const bool share = statistics && upstreams.size() == 1;
  const Sharing sharing = share ? choose_sharing(request_, upstreams[0], policy_.softcap > 0) : Sharing::none;

  const int64_t blocks = most == 0 ? 0 : (tokens_ + most - 1) / most;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t first = (statistics ? step : blocks - 1 - step) * most;
    const bool there = begun && step == 0;
    Block block{first, std::min(most, tokens_ - first), {}, {}, {}};
    block.hidden = policy_.hidden.narrow(0, first, block.count);
    if (policy_.weight.defined()) block.hidden = block.hidden.to(type_);
    if (there) {
      block.policy = policy_space.narrow(0, 0, block.count);
      if (reference_) block.reference = reference_space.narrow(0, 0, block.count);
    } else {
      block.policy = block_logits(policy_, block.hidden, vocabulary_, blocking_.weight_rows, policy_space);
    }
    if (reference_ && !there) {
      Tensor hidden = reference_->hidden.narrow(0, first, block.count);
      if (reference_->weight.defined()) hidden = hidden.to(type_);
      block.reference = block_logits(*reference_, hidden, vocabulary_, blocking_.weight_rows, reference_space);
    }
    T* policy = block.policy.data_ptr<T>();
    T* reference = reference_ ? block.reference.data_ptr<T>() : nullptr;
    // Two gradients of one block take the places of the two rows; gradients of logits have a place of their own.
    const auto target = [&](size_t which, int64_t t) -> T* {
      if (from_logits()) return gradients[which].hidden.data_ptr<T>() + (first + t) * gradients[which].hidden.size(1);
      return (which == 0 ? policy : reference) + t * vocabulary_;
    };
    at::parallel_for(0, block.count, 1, [&](int64_t begin, int64_t end) {
      std::vector<RowGradient<T>> wanted(upstreams.size());
      for (int64_t t = begin; t < end; ++t) {
        const int64_t token = first + t;
        const Row<T> row{token,
                         vocabulary_,
                         policy + t * vocabulary_,
                         reference ? reference + t * vocabulary_ : nullptr,
                         scores,
                         labels ? labels[token] : -100};
        if (statistics) {
          row_statistics(row, transforms, request_, sharing, states, out);
        } else if (!there) {
          law_kernels<T>().transform(row.policy, vocabulary_, transforms.policy);
          if (reference) law_kernels<T>().transform(row.reference, vocabulary_, transforms.reference);
        }
        if (upstreams.empty()) continue;
        for (size_t i = 0; i < upstreams.size(); ++i) wanted[i] = {&upstreams[i], target(i, t)};
        row_gradients<T>(row, transforms, request_, sharing, states, out, wanted);
      }
    });
    if (!from_logits() && !upstreams.empty()) products(block, step == 0, gradients);
  }
  if (statistics && upstreams.empty() && keep_last_) {
    policy_space_ = policy_space;
    reference_space_ = reference_space;
  }
}

/// The gradients of hidden states, weight and bias from those of a block's logits, which stand in the logits' places.
void HeadWalk::products(const Block& block, bool begin, std::span<HeadGradients> gradients) const {
  for (size_t i = 0; i < gradients.size(); ++i) {
    HeadGradients& g = gradients[i];
    const Tensor& logits = i == 0 ? block.policy : block.reference;
    if (g.bias.defined()) g.bias.narrow(0, 0, vocabulary_).add_(logits.sum(0));
    with_weight(policy_.weight, vocabulary_, type_, blocking_.weight_rows, [&](int64_t first, const Tensor& weight) {
      const Tensor part = logits.narrow(1, first, weight.size(0));
      if (g.hidden.defined()) {
        Tensor hidden = g.hidden.narrow(0, block.first, block.count);
        if (first == 0)
          at::mm_out(hidden, part, weight);
        else
          hidden.addmm_(part, weight);
      }
      if (!g.weight.defined()) return;
      Tensor rows = g.weight.narrow(0, first, weight.size(0));
      if (rows.scalar_type() != type_) {
        const Tensor sum = at::mm(part.t(), block.hidden);
        rows.copy_(begin ? sum : sum.add_(rows));
      } else if (begin) {
        at::mm_out(rows, part.t(), block.hidden);
      } else {
        rows.addmm_(part.t(), block.hidden);
      }
    });
  }
}

}  // namespace kullback::detail
