#include "kullback/distill/swing.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using O = SwingOptions;

Tensor swing_temperature(const Tensor& privacy, const O& o) {
  if (o.schedule == O::Schedule::linear) return o.t_min + (o.t_max - o.t_min) * privacy;
  return at::where(privacy >= o.threshold, o.t_max, o.t_min);
}

namespace {

/// Noise of the scale that the options name, from standard noise.
Tensor scaled(const Tensor& standard, const O& o) {
  const double scale = o.sensitivity / o.epsilon;
  if (o.noise == O::Noise::gaussian) return scale * std::sqrt(2 * std::log(1.25 / o.delta)) * standard;
  const Tensor centred = standard - 0.5;
  const Tensor within = (2 * centred.abs()).clamp_max(1 - 0x1.0p-53);  // a uniform number of 0 is no infinite noise
  return -scale * centred.sign() * at::log1p(-within);
}

/// Euclidean projection of rows on the simplex (Held, Wolfe and Crowder 1974).
Tensor on_simplex(const Tensor& rows) {
  const Tensor sorted = std::get<0>(at::sort(rows, 1, /*descending=*/true));
  const Tensor count = at::arange(1, rows.size(1) + 1, rows.options());
  const Tensor shift = (sorted.cumsum(1) - 1) / count;  // were so many of the largest kept
  const Tensor kept = (sorted > shift).sum(1, true);
  return (rows - shift.gather(1, kept - 1)).clamp_min(0);
}

}  // namespace

SwingTargets swing_targets(const Tensor& teacher_logits, const Tensor& privacy, const Tensor& places,
                           const SwingNoise& noise, const O& o) {
  const Tensor temperature = swing_temperature(privacy, o).to(teacher_logits.scalar_type());
  const Tensor p = at::softmax(teacher_logits / temperature.unsqueeze(1), 1);
  if (o.noise == O::Noise::none) return {p, p};
  const int64_t vocabulary = p.size(1);
  const bool all = o.noise_support == 0 || o.noise_support >= vocabulary;
  const Tensor ids = all ? at::arange(vocabulary, at::kLong).expand_as(p)
                         : at::argsort(p, /*stable=*/true, 1, /*descending=*/true).narrow(1, 0, o.noise_support);
  Tensor n = scaled(noise(places, ids), o);
  if (o.noise_where == O::Where::private_tokens) n = n * privacy.unsqueeze(1);
  const Tensor noisy = p.scatter_add(1, ids, n.to(p.scalar_type()));
  if (o.projection == O::Projection::simplex) return {p, on_simplex(noisy)};
  const Tensor kept = noisy.clamp_min(0), sum = kept.sum(1, true);
  return {p, at::where(sum > 0, kept / sum, p)};
}

SwingLoss swing_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                     const Tensor& privacy, const SwingNoise& noise, const O& o, double tokens_in_step) {
  const CountedTokens c = counted_tokens(student, teacher, labels, mask, Reduction::token_mean, tokens_in_step);
  const Tensor score = privacy.to(at::kDouble).reshape(-1).index_select(0, c.places);  // [C]
  const Tensor temperature = swing_temperature(score, o);
  const RowBlockLoss walked = row_block_loss(
      c.student, c.teacher,
      [&](const Tensor& s, const Tensor& t, int64_t first) {
        const auto of = [&](const Tensor& all) { return all.narrow(0, first, t.size(0)); };
        const Tensor target = swing_targets(t, of(score), of(c.places), noise, o).noisy;
        const Tensor heat = of(temperature).to(s.scalar_type());
        const bool same = o.student_temperature == O::StudentTemperature::same;
        const Tensor kl =
            row_divergence(divergence("kl").from_reference(), same ? s / heat.unsqueeze(1) : s, target.log());
        return o.t_squared ? kl * heat.square() : kl;
      },
      o.lam * c.weights);
  const Tensor guard = o.ce_guard ? 1 - score : at::ones_like(score);
  const HeadLoss label = cross_entropy(c.student, c.labels, (1 - o.lam) * c.weights * guard);
  SwingLoss result;
  result.loss = walked.loss + label.loss;
  result.kd = weighted_sum(c.weights, walked.values.to(at::kDouble));
  result.ce = -weighted_sum(c.weights * guard, label.statistics.logps.to(at::kDouble));
  result.temperature = swing_temperature(privacy.to(at::kDouble), o);
  result.per_token = at_places(walked.values.to(at::kDouble), c.places, mask);
  return result;
}

Tensor privacy_score(const Tensor& teacher_logps, const Tensor& public_logps, double margin, double width) {
  return at::sigmoid((teacher_logps - public_logps - margin) / width);
}

CanaryExposure canary_exposure(const Tensor& logps, int64_t inserted) {
  if (inserted < 0 || inserted >= logps.numel()) fail("canary {}: there are {} candidates", inserted, logps.numel());
  const int64_t rank = 1 + (logps > logps[inserted]).sum().item<int64_t>();
  return {rank, std::log2(static_cast<double>(logps.numel())) - std::log2(static_cast<double>(rank))};
}

namespace {

/// Noise of a counter-based stream keyed by seed, example, position and token: each draw depends on its own key alone.
SwingNoise stream_noise(const DistillationBatch& b, const O& o) {
  const int64_t length = b.mask.size(1);
  const bool normal = o.noise == O::Noise::gaussian;
  return [&b, o, length, normal](const Tensor& places, const Tensor& ids) {
    const Tensor noise = at::empty(ids.sizes(), at::kDouble), tokens = ids.contiguous();
    const int64_t* token = tokens.const_data_ptr<int64_t>();
    double* out = noise.mutable_data_ptr<double>();
    for (int64_t i = 0; i < places.numel(); ++i) {
      const int64_t place = places[i].item<int64_t>(), row = place / length;
      const int64_t example = b.lines.empty() ? row : b.lines[static_cast<size_t>(row)];
      const std::string purpose =
          o.freeze_noise ? fmt::format("swing/{}", example) : fmt::format("swing/{}/{}", example, b.step);
      RandomStream stream(b.seed, purpose, static_cast<uint64_t>(place % length));
      for (int64_t j = 0; j < ids.size(1); ++j, ++token, ++out) {
        stream.seek(2 * static_cast<uint64_t>(*token));  // a normal number takes two
        *out = normal ? stream.normal() : stream.uniform();
      }
    }
    return noise;
  };
}

/// [B,T] how private each token is, by the source that the options name.
Tensor privacy_of(const DistillationBatch& b, const O& o) {
  switch (o.privacy) {
    case O::Privacy::given: {
      const auto found = b.numbers.find("privacy");
      if (found == b.numbers.end())
        fail(
            "option --privacy: given needs the column \"private\" in the data, texts of the response that are; or take "
            "digits, memory or constant");
      return found->second;
    }
    case O::Privacy::digits: {
      if (b.student_tokenizer == nullptr) fail("option --privacy: digits needs the model's tokenizer");
      const Tensor labels = b.labels.contiguous(), score = at::zeros(labels.sizes(), at::kDouble);
      for (int64_t i = 0; i < labels.numel(); ++i) {
        if (!b.mask.reshape(-1)[i].item<bool>()) continue;
        const std::string text =
            b.student_tokenizer->token_bytes(static_cast<int32_t>(labels.const_data_ptr<int64_t>()[i]));
        const bool digit = std::any_of(text.begin(), text.end(), [](char x) { return x >= '0' && x <= '9'; });
        score.mutable_data_ptr<double>()[i] = digit;
      }
      return score;
    }
    case O::Privacy::memory: {
      const CountedTokens c = counted_tokens(b.teacher, b.teacher, b.labels, b.mask);
      const Tensor public_logps = b.other_logps.reshape(-1).index_select(0, c.places);
      return at_places(privacy_score(label_logps(c.teacher, c.labels).detach().to(at::kDouble),
                                     public_logps.to(at::kDouble), o.margin, o.width),
                       c.places, b.mask);
    }
    case O::Privacy::constant: break;
  }
  return at::full(b.labels.sizes(), o.privacy_constant, at::kDouble);
}

void check(const O& o) {
  if (o.t_max < o.t_min) fail("option --t-max: {} is below --t-min {}", o.t_max, o.t_min);
}

const Registered swing{
    distillation_method<O>("swing")
        .summary("Swing distillation: hotter, noisier targets where text is private")
        .formula("loss = lam mean KL(r || q) + (1 - lam) CE, T = t_min + (t_max - t_min) privacy of each token\n"
                 "p = softmax(teacher / T), r = p + noise of scale sensitivity / epsilon, made a law again; q = "
                 "softmax(student "
                 "/ T)")
        .when(
            "When the teacher's training text holds secrets that the student must not repeat. Exposure falls where the "
            "student's own data has other text in the place of the secret; keep noise_support at 32 to 128 with a real "
            "vocabulary. It is no proof of differential privacy.")
        .paper({"Swing Distillation: A Privacy-Preserving Knowledge Distillation Framework", "2212.08349", ""})
        .option("temperature-schedule", &O::schedule, {{"linear", O::Schedule::linear}, {"step", O::Schedule::step}},
                "how a token's temperature follows its privacy")
        .option("t-min", &O::t_min, at_least(1), "temperature of public tokens")
        .option("t-max", &O::t_max, at_least(1), "temperature of private tokens")
        .option("threshold", &O::threshold, fraction, "step: the privacy from which the temperature is t-max")
        .option("noise", &O::noise,
                {{"laplace", O::Noise::laplace}, {"gaussian", O::Noise::gaussian}, {"none", O::Noise::none}},
                "noise in the teacher's law")
        .option("epsilon", &O::epsilon, positive, "less is more noise: its scale is sensitivity / epsilon")
        .option("sensitivity", &O::sensitivity, positive, "see epsilon")
        .option("delta", &O::delta,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true, .maximum_excluded = true},
                "gaussian: its deviation is the scale times sqrt(2 ln(1.25 / delta))")
        .option("noise-where", &O::noise_where, {{"all", O::Where::all}, {"private", O::Where::private_tokens}},
                "noise at all tokens alike, or times each token's privacy")
        .option("noise-support", &O::noise_support, non_negative,
                "noise only on so many of the likeliest tokens; 0: on the whole vocabulary")
        .option("projection", &O::projection, {{"clip", O::Projection::clip}, {"simplex", O::Projection::simplex}},
                "how a noisy law becomes a law again: clipped at 0 and rescaled, or the nearest one")
        .option("student-temperature", &O::student_temperature,
                {{"same", O::StudentTemperature::same}, {"one", O::StudentTemperature::one}},
                "the student's temperature: the token's, or 1")
        .option("t-squared", &O::t_squared, "multiply a token's divergence by its temperature squared")
        .option("lam", &O::lam, fraction, "weight of the divergence; the rest is cross-entropy on the labels")
        .option("ce-guard", &O::ce_guard, "cross-entropy of a token counts 1 - privacy")
        .option("freeze-noise", &O::freeze_noise, "the same noise at every visit of a token; fresh noise averages out")
        .option("privacy", &O::privacy,
                {{"given", O::Privacy::given},
                 {"digits", O::Privacy::digits},
                 {"memory", O::Privacy::memory},
                 {"constant", O::Privacy::constant}},
                "where a token's privacy is from: the data's column `private` (texts of the response that are), 1 for "
                "tokens "
                "with a digit, how much better the teacher knows it than --other-model does, or one number for all")
        .option("privacy-constant", &O::privacy_constant, fraction, "privacy constant: of every token")
        .option("margin", &O::margin, any_number, "memory: nats that a public token may differ")
        .option("width", &O::width, positive, "memory: nats over which the score rises")
        .needs([](const O& o) {
          DistillationNeeds needs;
          needs.other_model = o.privacy == O::Privacy::memory;
          return needs;
        })
        .validate(check)
        .loss([](const DistillationBatch& b, const O& o) {
          const SwingLoss l = swing_loss(b.student, b.teacher, b.labels, b.mask, privacy_of(b, o), stream_noise(b, o),
                                         o, b.tokens_in_step);
          return DistillationLoss{
              .value = l.loss,
              .parts = {{"kd_loss", l.kd}, {"ce_loss", l.ce}, {"temperature", l.temperature.masked_select(b.mask)}}};
        })};

}  // namespace
}  // namespace kullback
