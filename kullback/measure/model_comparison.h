#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kullback/lm/model.h"
#include "kullback/train/data.h"
#include "kullback/train/figures.h"
#include "kullback/train/reference.h"
#include "kullback/train/teacher.h"

namespace kullback {

// How far apart two models of one tokenizer are: exact divergences of their next-token laws at every token of given responses,
// and the KL of whole responses from samples of one of them.

/// A figure of the comparison, and how it is said: "kl", "KL(A || B)", "nats/token".
struct ComparedMeasure {
  std::string figure, title, unit;
};
const std::vector<ComparedMeasure>& compared_measures();

/// One side of a comparison: a model with its adapters on or off, or what was recorded of one.
struct ComparedSide {
  /// Rows at a batch's counted tokens; `lines`: where each of its sequences stands in the data.
  std::function<Rows(const ResponseBatch& batch, const std::vector<int64_t>& lines)> rows;
  int64_t vocabulary = 0;  ///< of its rows
};
/// Rows of the head beyond `vocabulary` take no part; 0: all do.
ComparedSide compared_side(const Reference& model, int64_t vocabulary = 0);
/// The renormalised laws of the tokens that were kept.
ComparedSide compared_side(std::shared_ptr<const Teacher> recorded);

/// One token of a response as both models see it.
struct TokenDifference {
  int64_t row = 0;                 ///< which response
  int64_t place = 0;               ///< of the token in it, from 0
  int32_t token = 0;               ///< what stands there
  double kl = 0, reverse_kl = 0;   ///< KL(A || B) and KL(B || A) of the laws of this token, nats
  int32_t a_says = 0, b_says = 0;  ///< their likeliest tokens
  double a_logp = 0, b_logp = 0;   ///< log-probability of the token, nats
};

struct ModelComparison {
  std::vector<Figures> rows;            ///< a response each: compared_measures, "agreement", "loss_a", "loss_b"
  std::vector<Figures> by_place;        ///< the same rows: "kl 0", "kl 1", ... by joined place
  std::vector<TokenDifference> tokens;  ///< every counted token, in order
};

/// Compares A with B on responses. `progress(done, total)`. Error where the vocabularies differ.
ModelComparison compare_models(const ComparedSide& a, const ComparedSide& b, const std::vector<Example>& responses,
                               const std::function<void(int64_t, int64_t)>& progress = {});

/// The same tokens by their class (text/token_class.h), a response each: "kl word start", "reverse-kl word start", ...
std::vector<Figures> figures_by_class(const ModelComparison& comparison, const std::vector<Example>& responses,
                                      const Tokenizer& tokenizer);

/// How responses are drawn, at temperature 1 without filters: from the model's own law.
struct DrawOptions {
  int64_t draws = 1;        ///< of each prompt
  int64_t max_tokens = 64;  ///< of a response
  uint64_t seed = 0;
};

/// Responses that a model draws to the prompts of `examples`, prompt by prompt; of an example without a prompt, none. Each has its
/// text and the line of its prompt.
std::vector<std::vector<Example>> drawn_responses(const Model& model, AdapterUse use,
                                                  const std::vector<Example>& examples, const DrawOptions& options,
                                                  const std::function<void(int64_t, int64_t)>& progress = {});

/// A and B on responses that A drew: rows of figures, one a prompt. compared_measures and the others of compare_models; and
/// "k1", "k3" and "rb" (Rao-Blackwellised), each an unbiased estimate of KL(A || B) in nats a response, and "length".
std::vector<Figures> compare_on_samples(const ComparedSide& a, const ComparedSide& b,
                                        const std::vector<std::vector<Example>>& drawn,
                                        const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace kullback
