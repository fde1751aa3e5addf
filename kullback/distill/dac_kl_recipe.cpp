// Multi-granularity revision as `kullback distill` runs it: corrected responses, the network of levels, spans.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/counted.h"
#include "kullback/distill/dac_kl.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {
namespace {

using at::Tensor;
using O = DacKlOptions;

/// What the teacher says at each place: its likeliest token, or one drawn from its law. [B,T]
Tensor teacher_tokens(const DistillationBatch& b, const O& o, RandomStream& stream) {
  const CountedTokens c = counted_tokens(b.teacher, b.teacher, {}, b.mask);
  if (o.teacher_token == O::TeacherToken::argmax) {
    HeadRequest request;
    request.top_k = 1;
    return at_places(head_statistics(c.teacher, request).top_ids.reshape(-1), c.places, b.mask);
  }
  const Tensor u = at::empty({c.places.numel()}, at::kDouble);
  for (int64_t i = 0; i < u.numel(); ++i) u.mutable_data_ptr<double>()[i] = stream.uniform();
  const Tensor drawn = row_block_values(c.teacher, c.teacher, [&](const Tensor&, const Tensor& t, int64_t first) {
    const Tensor below = at::softmax(t, 1, at::kDouble).cumsum(1) <= u.narrow(0, first, t.size(0)).unsqueeze(1);
    return below.sum(1).clamp_max(t.size(1) - 1).to(at::kDouble);
  });
  return at_places(drawn.to(at::kLong), c.places, b.mask);
}

/// Student's responses, each corrected at its worst token and continued by the student, `corrections` times.
std::vector<Response> corrected(DistillationStep& step, const O& o) {
  const at::NoGradGuard no_grad;
  const std::string name = fmt::format("dac-kl/{}", step.step);
  std::vector<Response> responses = step.run.draw(ResponseSource::student, step.examples, name);
  for (int64_t round = 0; round < o.corrections; ++round) {
    RandomStream stream(step.seed, fmt::format("{}/teacher/{}", name, round));
    std::vector<int64_t> examples;
    std::vector<size_t> which;
    std::vector<std::vector<int32_t>> beginnings;
    size_t next = 0;  // batches come in the order of the responses
    step.run.each_batch(responses, [&](const DistillationBatch& b) {
      const Correction found = find_corrections(b.student, b.teacher, b.labels, teacher_tokens(b, o, stream), b.mask);
      for (size_t i = 0; i < found.position.size(); ++i, ++next) {
        if (found.position[i] < 0) continue;
        which.push_back(next);
        examples.push_back(responses[next].example);
        beginnings.emplace_back(found.prefix[i].begin(), found.prefix[i].end());
      }
    });
    if (which.empty()) break;
    auto redrawn = step.run.draw(ResponseSource::student, examples, fmt::format("{}/{}", name, round), beginnings);
    for (size_t i = 0; i < which.size(); ++i) responses[which[i]] = std::move(redrawn[i]);
  }
  return responses;
}

Modules level_network(const DistillationSizes& sizes, const O& o) {
  if (o.bounds == O::Bounds::fixed) return {};
  const auto width = 2 * static_cast<int64_t>(o.levels.size());
  RandomStream stream(sizes.seed, "dac-kl/levels");
  const auto normal = [&](int64_t rows, int64_t columns) {
    const Tensor w = at::empty({rows, columns}, at::kFloat);
    for (int64_t i = 0; i < w.numel(); ++i)
      w.mutable_data_ptr<float>()[i] =
          static_cast<float>(0.1 * stream.normal() / std::sqrt(static_cast<double>(columns)));
    return w;
  };
  const auto logit = [](double p) { return static_cast<float>(std::log(p / (1 - p))); };
  const double upper = 1 - 0.5 / static_cast<double>(std::max<int64_t>(2, sizes.teacher_vocabulary - 1));
  return {{"w1", normal(o.hidden, width)},
          {"b1", at::zeros({o.hidden})},
          {"w2", normal(2, o.hidden)},
          {"b2", at::tensor({logit(upper), logit(0.9)}, at::kFloat)}};
}

/// The spans of sequences of tokens, [S,3]: phrases, or windows of span_length tokens.
Tensor spans_of(const Tensor& tokens, const Tensor& mask, const Tokenizer* tokenizer, const O& o) {
  if (o.spans == O::Spans::windows)
    return spans_where(mask, [&](int64_t, int64_t first, int64_t t) { return t + 1 - first == o.span_length; });
  if (tokenizer == nullptr) fail("option --spans: phrases needs the student's tokenizer");
  const Tensor ids = tokens.contiguous();
  return spans_where(mask, [&](int64_t sequence, int64_t, int64_t t) {
    const int64_t id = ids.const_data_ptr<int64_t>()[sequence * ids.size(1) + t];
    return closes_phrase(tokenizer->token_bytes(static_cast<int32_t>(id)));
  });
}

/// Those that span_loss takes its mean over: of two tokens and more.
double counted_spans(const Tensor& spans) { return (spans.select(1, 2) > spans.select(1, 1)).sum().item<double>(); }

/// The spans of all the step's responses, over which its batches take one mean.
void count_spans(DistillationStep& step, const O& o) {
  double spans = 0;
  for (const Response& r : step.responses) {
    const Tensor tokens = at::tensor(std::vector<int64_t>(r.tokens.begin(), r.tokens.end()), at::kLong).unsqueeze(0);
    spans += counted_spans(spans_of(tokens, at::ones_like(tokens, at::kBool), step.run.student_tokenizer(), o));
  }
  step.state.values["spans"] = spans;
}

DistillationLoss loss(const DistillationBatch& b, const O& o) {
  DistillationLoss result{.value = at::zeros({}, at::kDouble), .parts = {}};
  if (o.w_sft > 0) {
    const CountedTokens c = counted_tokens(b.data.student, b.data.student, b.data.labels, b.data.mask,
                                           Reduction::token_mean, b.data.tokens_in_step);
    const Tensor sft = cross_entropy(c.student, c.labels, c.weights).loss;
    result.value = result.value + o.w_sft * sft;
    result.parts["sft_loss"] = sft.detach();
  }
  if (o.w_dac > 0) {
    const auto module = [&](const char* name) {
      const auto found = b.modules.find(name);
      return found == b.modules.end() ? Tensor() : found->second;
    };
    const LevelNetwork network{.w1 = module("w1"), .b1 = module("b1"), .w2 = module("w2"), .b2 = module("b2")};
    const DacLoss dac = dac_kl_loss(b.student, b.teacher, b.mask, network, o, b.tokens_in_step);
    result.value = result.value + o.w_dac * dac.loss;
    result.parts["dac_kl"] = dac.loss.detach();
    result.parts["kept_teacher_mass"] = dac.kept_teacher_mass;
    result.parts["effective_classes"] = dac.effective_classes;
    result.parts["lower"] = dac.levels.select(1, 0), result.parts["upper"] = dac.levels.select(1, 1);
  }
  if (o.w_span > 0) {
    const Tensor spans = spans_of(b.labels, b.mask, b.student_tokenizer, o);
    const double of_step = b.state != nullptr ? b.state->values.value("spans", 0.0) : 0;
    const double share = of_step > 0 ? counted_spans(spans) / of_step : 1;
    const Tensor mean = share * span_loss(b.student, b.teacher, spans, b.mask.size(1), o.norm);
    result.value = result.value + o.w_span * mean;
    result.parts["span_loss"] = mean.detach();
  }
  return result;
}

const NumberRange level{.minimum = 0, .maximum = 1};

const Registered dac_kl{
    distillation_method<O>("dac-kl")
        .summary("Revision at three granularities: corrected sequences, clipped token laws, correlated spans")
        .formula("loss = w_sft CE(data) + w_dac mean KL(P || Q) + w_span mean |p_i p_(i+1) - q_i q_(i+1)|^2\n"
                 "P = w p / Z, Q = w q / Z: the classes between two quantiles of ln p and the likeliest, w shared\n"
                 "SCRG: replace the student's token of the largest KL by the teacher's, let the student go on")
        .when("On the student's own responses, when the teacher's long tail misleads a small student. Watch "
              "kept_teacher_mass: learned levels may collapse on one class; --coverage-weight guards against it.")
        .paper({"Multi-Granularity Semantic Revision for Large Language Model Distillation", "2407.10068", ""})
        .option("w-sft", &O::w_sft, non_negative, "weight of cross-entropy on the data's responses", "paper")
        .option("w-dac", &O::w_dac, non_negative, "weight of DAC-KL", "paper")
        .option("w-span", &O::w_span, non_negative, "weight of the spans' correlation", "paper")
        .option("bounds", &O::bounds, {{"learned", O::Bounds::learned}, {"fixed", O::Bounds::fixed}},
                "the quantile levels: from a small network trained along, or lower and upper")
        .option("lower", &O::lower, level, "fixed: lower quantile level of the teacher's ln p")
        .option("upper", &O::upper, level, "fixed: upper quantile level")
        .option("levels", &O::levels, level, "quantile levels that the network sees of both laws")
        .option("hidden", &O::hidden, at_least(1), "width of the network")
        .option("mask", &O::mask, {{"soft", O::Mask::soft}, {"hard", O::Mask::hard}},
                "whether classes fade at the thresholds or are cut; cut ones give the network no gradient")
        .option("softness", &O::softness, positive, "soft: nats over which a class fades")
        .option("high-density", &O::high_density, "keep the classes between the levels")
        .option("target-class", &O::target_class, "always keep the teacher's likeliest class")
        .option("coverage-weight", &O::coverage_weight, non_negative, "guard against collapse: weight of its penalty")
        .option("coverage-floor", &O::coverage_floor, fraction, "guard: the teacher's mass that should be kept")
        .option("norm", &O::norm, {{"l2_squared", O::Norm::l2_squared}, {"l2", O::Norm::l2}},
                "how far the products of neighbouring laws are")
        .option("teacher-token", &O::teacher_token,
                {{"argmax", O::TeacherToken::argmax}, {"sample", O::TeacherToken::sample}},
                "what the teacher says at a place: its likeliest token or a draw")
        .option("corrections", &O::corrections, non_negative, "how often a response is corrected", "paper")
        .option("spans", &O::spans, {{"phrases", O::Spans::phrases}, {"windows", O::Spans::windows}},
                "what a span is: what stands between punctuation marks, or a fixed number of tokens")
        .option("span-length", &O::span_length, at_least(2), "windows: tokens of a span")
        .needs([](const O& o) {
          DistillationNeeds needs;
          needs.sources = {.data = 0, .student = 1};
          needs.data = o.w_sft > 0;
          needs.side_teacher = false;
          needs.live_teacher = true;
          return needs;
        })
        .validate([](const O& o) {
          if (!o.high_density && !o.target_class)
            fail("option --high-density: without it and --target-class no class is left");
          if (o.lower > o.upper) fail("option --lower: {} is above --upper {}", o.lower, o.upper);
          if (o.levels.empty()) fail("option --levels: there are none");
        })
        .modules(level_network)
        .responses(corrected)
        .before_step([](DistillationStep& step, const O& o) {
          if (o.w_span > 0) count_spans(step, o);
        })
        .loss(loss)};

}  // namespace
}  // namespace kullback
