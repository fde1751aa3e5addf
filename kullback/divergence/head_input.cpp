#include "kullback/divergence/head_input.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/definition.h"

namespace kullback::detail {

using at::Tensor;

int64_t rows_of_head(const Rows& rows) {
  if (rows.make) return rows.vocabulary;
  return rows.weight.defined() ? rows.weight.size(0) : rows.hidden.size(1);
}

int64_t real_vocabulary(const Rows& rows) { return rows.vocabulary > 0 ? rows.vocabulary : rows_of_head(rows); }

namespace {

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
  if (rows.make && (rows.weight.defined() || rows.hidden.requires_grad()))
    fail("the {}'s rows are made without a head, and take no gradient", whose);
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

/// The f-divergence of what both laws hold: a token that one of them lacks adds nothing.
Divergence on_common_tokens(const Divergence& divergence) {
  Definition common = divergence.definition();
  if (!common.generator) {
    fail("divergence '{}' has no generator and cannot be summed over a prefix of the vocabulary", common.name);
  }
  for (auto* term : {&common.from_policy, &common.from_reference}) {
    if (*term) (*term)->at_zero = (*term)->slope_at_infinity = 0;
  }
  const double slope = common.generator->derivative(1);
  Generator tangent_at_one;  // f less its tangent at 1
  tangent_at_one.value = [f = common.generator->value, slope](double u) { return f(u) - slope * (u - 1); };
  tangent_at_one.derivative = [f = common.generator->derivative, slope](double u) { return f(u) - slope; };
  common.plain = plain_generator(tangent_at_one);
  return Divergence(std::make_shared<const Definition>(std::move(common)));
}

}  // namespace

HeadInput::HeadInput(Rows policy_rows, std::optional<Rows> reference_rows, HeadRequest wanted)
    : policy(std::move(policy_rows)), reference(std::move(reference_rows)), request(std::move(wanted)) {
  check_rows(policy, "policy");
  tokens = policy.hidden.size(0);
  type = policy.hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (request.divergences.empty())
    reference.reset();
  else if (!reference)
    fail("a divergence between rows needs the reference's rows");
  if (reference) {
    check_rows(*reference, "reference");
    if (reference->hidden.size(0) != tokens)
      fail("the policy has {} rows and the reference {}", tokens, reference->hidden.size(0));
    if ((reference->hidden.scalar_type() == at::kDouble) != (type == at::kDouble)) {
      fail("the policy's rows are of type {} and the reference's of type {}", at::toString(policy.hidden.scalar_type()),
           at::toString(reference->hidden.scalar_type()));
    }
    settle_vocabularies();
  }
  vocabulary = width = real_vocabulary(policy);
  if (reference) width = std::max(width, reference_vocabulary = real_vocabulary(*reference));
  check_request(request, tokens, vocabulary);
  if (request.labels.defined()) request.labels = request.labels.contiguous();
  if (request.scores.defined()) {
    request.scores = at::constant_pad_nd(request.scores.detach().to(type), {0, width - vocabulary}).contiguous();
  }
}

void HeadInput::settle_vocabularies() {
  const int64_t ours = real_vocabulary(policy), theirs = real_vocabulary(*reference);
  if (ours == theirs) return;
  switch (request.unequal) {
    case UnequalVocabularies::refuse:
      fail("the policy's vocabulary is {} and the reference's {}; say by `unequal` how they are compared", ours,
           theirs);
    case UnequalVocabularies::renormalise: policy.vocabulary = reference->vocabulary = std::min(ours, theirs); return;
    case UnequalVocabularies::prefix:
      for (RowDivergence& d : request.divergences) d.divergence = on_common_tokens(d.divergence);
      return;
    case UnequalVocabularies::whole: return;
  }
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

}  // namespace kullback::detail
