#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kullback/lm/model.h"
#include "kullback/train/data.h"
#include "kullback/train/figures.h"
#include "kullback/train/reference.h"

namespace kullback {

// How far apart two models of one tokenizer are: exact divergences of their next-token laws at every token of given responses,
// and the KL of whole responses from samples of the first.

/// A figure of the comparison, and how it is said: "kl", "KL(A || B)", "nats/token".
struct ComparedMeasure {
  std::string figure, title, unit;
};
const std::vector<ComparedMeasure>& compared_measures();

/// One token of a response as both models see it.
struct TokenDifference {
  int64_t row = 0;                 ///< which response
  int64_t place = 0;               ///< of the token in it, from 0
  int32_t token = 0;               ///< what stands there
  double kl = 0;                   ///< KL(A || B) of the laws of this token, nats
  int32_t a_says = 0, b_says = 0;  ///< their likeliest tokens
  double a_logp = 0, b_logp = 0;   ///< log-probability of the token, nats
};

struct ModelComparison {
  std::vector<Figures> rows;            ///< a response each: compared_measures, "agreement", "loss_a", "loss_b"
  std::vector<Figures> by_place;        ///< the same rows: "kl 0", "kl 1", ... by joined place
  std::vector<TokenDifference> tokens;  ///< every counted token, in order
};

/// Compares A with B, two models (or one with its adapters on and off), on responses. `progress(done, total)`. Error where the
/// vocabularies differ.
ModelComparison compare_models(const Reference& a, const Reference& b, const std::vector<Example>& responses,
                               const std::function<void(int64_t, int64_t)>& progress);

/// KL(A || B) of whole responses from `draws` samples of A to each prompt: rows of figures, one a prompt, "sampled k1",
/// "sampled k3" and "sampled rb" (Rao-Blackwellised), each an unbiased estimate in nats a response, and "sampled length".
std::vector<Figures> sampled_sequence_kl(const Model& a_model, const Reference& a, const Reference& b,
                                         const std::vector<Example>& prompts, int64_t draws, int64_t max_tokens,
                                         uint64_t seed, const std::function<void(int64_t, int64_t)>& progress);

}  // namespace kullback
