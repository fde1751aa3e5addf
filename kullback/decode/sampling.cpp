// The page of the basic decoders. The filters themselves stand below, where generation uses them (lm/sampling.h).
#include "kullback/lm/sampling.h"

#include "kullback/decode/sampling_options.h"

namespace kullback {

namespace {

void add_filters(Options<Sampling>& options) {
  using S = Sampling;
  options.option("top-k", &S::top_k, at_least(0), "draw among the k likeliest tokens only; 0: all")
      .option("top-p", &S::top_p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
              "draw among the likeliest tokens that make up this probability")
      .option("min-p", &S::min_p, fraction, "draw among tokens of at least this share of the largest probability")
      .option("typical", &S::typical, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
              "draw among tokens whose surprise is nearest to the entropy and that make up this probability")
      .option("epsilon", &S::epsilon, from_to_below(0, 1), "drop tokens of a smaller probability; usual: 3e-4")
      .option("eta", &S::eta, from_to_below(0, 1), "the same, less strict where the entropy is high")
      .option("min-keep", &S::min_keep, at_least(1), "every filter but top-k leaves at least so many tokens")
      .option("repetition-penalty", &S::repetition_penalty, positive,
              "positive logits of tokens that have occurred are divided by it, negative ones multiplied")
      .option("frequency-penalty", &S::frequency_penalty, NumberRange{},
              "taken from a token's logit for each time it has occurred")
      .option("presence-penalty", &S::presence_penalty, NumberRange{},
              "taken from the logit of a token that has occurred");
}

}  // namespace

const Options<Sampling>& filter_options() {
  static const auto options = [] {
    Options<Sampling> all;
    add_filters(all);
    return all;
  }();
  return options;
}

const Options<Sampling>& sampling_options() {
  static const auto options = [] {
    Options<Sampling> all;
    all.option("temperature", &Sampling::temperature, non_negative,
               "logits are divided by it; 0: always the likeliest token");
    add_filters(all);
    return all;
  }();
  return options;
}

namespace {

Method method() {
  return {.name = "sampling",
          .family = Family::decoding,
          .summary = "Sampling filters and penalties, beams, best-of-n, contrastive and speculative decoding",
          .formula =
              "bias -> repetition -> frequency, presence -> temperature -> top-k -> top-p -> min-p -> typical -> "
              "epsilon -> "
              "eta -> softmax -> draw\n"
              "top-k: l >= k-th largest.  top-p: mass before a token < p.  min-p: l >= max l + log m\n"
              "typical: |-log p - H| smallest, up to mass tau.  epsilon: p >= e.  eta: p >= min(e, sqrt(e) exp(-H))\n"
              "best of n: pi(y) / pi(r = r(y)) (F(r)^n - F(r-)^n)\n"
              "contrastive: log p_e - log p_a where log p_e >= max log p_e + log alpha\n"
              "speculative: accept x iff u q(x) < p(x); else draw from max(p - q, 0)",
          .when =
              "Everything that generates stands on these. What trains on samples must record the sampler's own "
              "log-probabilities, or sample with filters off.",
          .papers = {{"The Curious Case of Neural Text Degeneration", "1904.09751", "ICLR 2020"},
                     {"Locally Typical Sampling", "2202.00666", "TACL 2023"},
                     {"Truncation Sampling as Language Model Desmoothing", "2210.15191", "EMNLP Findings 2022"},
                     {"Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", "2407.01082",
                      "ICLR 2025"},
                     {"Contrastive Decoding: Open-ended Text Generation as Optimization", "2210.15097", "ACL 2023"},
                     {"Fast Inference from Transformers via Speculative Decoding", "2211.17192", "ICML 2023"}},
          .needs = {"rows of logits of the next token; contrastive and speculative: of two models"},
          .options = std::make_shared<Options<Sampling>>(sampling_options()),
          .recipe = {}};
}

const Registered sampling{method()};

}  // namespace
}  // namespace kullback
