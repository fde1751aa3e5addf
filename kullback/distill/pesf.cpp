#include "kullback/distill/pesf.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using Objective = PesfOptions::Objective;
using Adapter = PesfOptions::Adapter;
using Sign = PesfOptions::Sign;

Rows pesf_adapted(const Rows& teacher, const Tensor& hidden, const PesfAdapter& a, const PesfOptions& o,
                  const Tensor& keep) {
  const at::ScalarType type = a.w_up.scalar_type();
  const Tensor h = hidden.detach().to(type);
  const bool serial = o.adapter == Adapter::serial;
  // W_n (W_d h + b_d) = (W_n W_d) h + W_n b_d: the serial adapter needs no [N,V] either.
  const Tensor down = serial ? at::matmul(a.w_down, a.w_direct) : a.w_down;  // [R,H]
  const Tensor bias = serial ? a.b_down + at::mv(a.w_down, a.b_direct) : a.b_down;
  Tensor bottleneck = at::relu(at::matmul(h, down.t()) + bias);  // [N,R]
  if (keep.defined()) bottleneck = bottleneck * keep.to(type);
  const double sign = o.sign == Sign::add ? 1 : -1;
  const bool direct = o.adapter == Adapter::parallel;
  const Tensor shift = sign * (direct ? a.b_up + a.b_direct : a.b_up);  // [V]
  Rows adapted = teacher;
  const int64_t real = a.w_up.size(0);
  if (!teacher.weight.defined()) {  // logits as they stand are as large as the sum
    const Tensor correction =
        at::matmul(bottleneck, a.w_up.t()) + (direct ? at::matmul(h, a.w_direct.t()) : h.new_zeros({}));
    adapted.hidden = teacher.hidden.narrow(1, 0, real).to(type) + sign * correction + shift;
    return adapted;
  }
  const Tensor head = teacher.weight.narrow(0, 0, real).detach().to(type);
  adapted.hidden = at::cat({teacher.hidden.detach().to(type), bottleneck}, 1);             // [N,H+R]
  adapted.weight = at::cat({direct ? head + sign * a.w_direct : head, sign * a.w_up}, 1);  // [V,H+R]
  adapted.bias = teacher.bias.defined() ? teacher.bias.narrow(0, 0, real).to(type) + shift : shift;
  return adapted;
}

namespace {

/// Rows of logits [n,V] with the entries of the likeliest token (of equals the lowest id) and of the label exchanged.
Tensor swapped(const Tensor& logits, const Tensor& labels) {
  const Tensor ids = at::arange(logits.size(1), at::kLong);
  const Tensor is_top = logits == logits.amax(1, true);
  const Tensor top = ids.masked_fill(~is_top, logits.size(1)).amin(1, true), label = labels.unsqueeze(1);  // [n,1]
  const Tensor at_top = logits.gather(1, top), at_label = logits.gather(1, label);
  return logits.scatter(1, label, at_top).scatter(1, top, at_label);
}

struct BothSides {
  Tensor loss, value;
};

/// scale * sum of weights * D(adapted || student), differentiable in both.
BothSides both_ways(const Rows& student, const Rows& adapted, const Divergence& d, double scale,
                    const Tensor& weights) {
  HeadRequest seen_by_student, seen_by_teacher;
  seen_by_student.divergences = {d.from_reference()};
  seen_by_teacher.divergences = {d.from_policy()};
  HeadStatistics of;
  of.divergences = {scale * weights};
  const Tensor loss = head_loss(student, adapted, seen_by_student, of).loss;
  const Tensor mirrored = head_loss(adapted, student, seen_by_teacher, of).loss;
  return {loss + (mirrored - mirrored.detach()), loss.detach()};
}

BothSides divergence_of(const CountedTokens& c, const Rows& plain, const PesfOptions& o) {
  const double t2 = o.temperature * o.temperature;
  const Rows student = at_temperature(c.student, o.temperature), adapted = at_temperature(c.teacher, o.temperature);
  if (o.kd == Objective::kl) return both_ways(student, adapted, divergence("kl"), t2, c.weights);
  if (o.kd == Objective::mse_prob) {
    const int64_t vocabulary = c.teacher.weight.defined() ? c.teacher.weight.size(0) : c.teacher.hidden.size(1);
    return both_ways(student, adapted, divergence("bregman:squared"), t2 / static_cast<double>(vocabulary), c.weights);
  }
  const auto labels_of = [&](const Tensor& rows, int64_t first) { return c.labels.narrow(0, first, rows.size(0)); };
  const Tensor to_student =
      row_block_loss(
          student, at_temperature(plain, o.temperature),
          [&](const Tensor& s, const Tensor& t, int64_t first) {
            return row_divergence(divergence("kl").from_reference(), s, swapped(t, labels_of(t, first)));
          },
          t2 * c.weights)
          .loss;
  const Tensor to_teacher =
      row_block_loss(
          adapted, student,
          [&](const Tensor& a, const Tensor& s, int64_t first) {
            return row_divergence(divergence("kl").from_policy(), a, swapped(s, labels_of(s, first)));
          },
          t2 * c.weights)
          .loss;
  const Tensor loss = to_student + to_teacher;
  return {loss, loss.detach()};
}

/// Mean squared distance between the last hidden states, each scaled to length 1.
Tensor feature_loss(const CountedTokens& c, const Rows& plain) {
  const Tensor &ours = c.student.hidden, &theirs = plain.hidden;
  if (!c.student.weight.defined() || !plain.weight.defined() || ours.size(1) != theirs.size(1))
    fail("option --beta: the last hidden states of student and teacher have to be of one width ({} and {})",
         c.student.weight.defined() ? ours.size(1) : 0, plain.weight.defined() ? theirs.size(1) : 0);
  const auto unit = [](const Tensor& h) { return h / h.norm(2, 1, true).clamp_min(1e-12); };
  const Tensor error = unit(ours.to(at::kDouble)) - unit(theirs.detach().to(at::kDouble));
  return (c.weights * error.square().sum(1)).sum();
}

}  // namespace

PesfLoss pesf_loss(const Rows& student, const Rows& adapted, const Rows& plain, const Tensor& labels,
                   const Tensor& mask, const PesfOptions& o, double tokens_in_step) {
  const CountedTokens c = counted_tokens(student, adapted, labels, mask, Reduction::token_mean, tokens_in_step);
  const Rows unadapted = rows_at(plain, c.places);
  const HeadLoss ours = cross_entropy(c.student, c.labels, o.gamma * c.weights);
  const HeadLoss theirs = cross_entropy(c.teacher, c.labels, o.delta * c.weights);
  PesfLoss result;
  const auto mean = [&](const Tensor& values) { return weighted_sum(c.weights, values.to(at::kDouble)); };
  result.ce_student = -mean(ours.statistics.logps), result.ce_teacher = -mean(theirs.statistics.logps);
  const BothSides kd = divergence_of(c, unadapted, o);
  result.kd = kd.value;
  result.loss = ours.loss + theirs.loss;
  if (o.alpha != 0) result.loss = result.loss + o.alpha * kd.loss;
  result.feature = at::zeros({}, at::kDouble);
  if (o.beta != 0) {
    const Tensor feature = feature_loss(c, unadapted);
    result.loss = result.loss + o.beta * feature;
    result.feature = feature.detach();
  }
  const Tensor sharpness = row_block_values(c.student, c.teacher, [](const Tensor& s, const Tensor& t, int64_t) {
                             const Tensor of_s = at::logsumexp(s, 1), of_t = at::logsumexp(t, 1);
                             return at::stack({of_s, of_t, of_s - s.mean(1), of_t - t.mean(1)}, 1);
                           }).reshape({-1, 4});
  result.sharpness_student = mean(sharpness.select(1, 0)), result.sharpness_teacher = mean(sharpness.select(1, 1));
  result.sharpness_student_centred = mean(sharpness.select(1, 2));
  result.sharpness_teacher_centred = mean(sharpness.select(1, 3));
  return result;
}

namespace {

/// At the start the adapter adds nothing: step 0 is plain distillation.
Modules adapter_at_start(const DistillationSizes& sizes, const PesfOptions& o) {
  const int64_t v = sizes.teacher_vocabulary, h = sizes.teacher_width, r = o.rank;
  RandomStream stream(sizes.seed, "pesf-kd/adapter");
  const auto normal = [&](int64_t rows, int64_t columns) {
    const Tensor w = at::empty({rows, columns}, at::kFloat);
    const double deviation = 1 / std::sqrt(static_cast<double>(columns));
    for (int64_t i = 0; i < w.numel(); ++i)
      w.mutable_data_ptr<float>()[i] = static_cast<float>(deviation * stream.normal());
    return w;
  };
  const bool serial = o.adapter == Adapter::serial;
  Modules modules{{"w_down", normal(r, serial ? v : h)},
                  {"b_down", at::zeros({r})},
                  {"w_up", at::zeros({v, r})},
                  {"b_up", at::zeros({v})}};
  if (o.adapter != Adapter::bottleneck) {
    modules.push_back({"w_direct", serial ? normal(v, h) : at::zeros({v, h})});
    modules.push_back({"b_direct", at::zeros({v})});
  }
  return modules;
}

/// [N,R]: 0 for what is dropped, 1 / (1 - rate) elsewhere; the same for the same step of the same run.
Tensor kept(int64_t rows, const DistillationBatch& b, const PesfOptions& o) {
  if (o.adapter_dropout == 0) return {};
  RandomStream stream(b.seed, fmt::format("pesf-kd/dropout/{}", b.lines.empty() ? 0 : b.lines[0]),
                      static_cast<uint64_t>(b.step));
  const Tensor keep = at::empty({rows, o.rank}, at::kFloat);
  for (int64_t i = 0; i < keep.numel(); ++i)
    keep.mutable_data_ptr<float>()[i] =
        stream.uniform() < o.adapter_dropout ? 0 : static_cast<float>(1 / (1 - o.adapter_dropout));
  return keep;
}

DistillationLoss loss(const DistillationBatch& b, const PesfOptions& o) {
  if (!b.teacher.weight.defined())
    fail("pesf-kd: its adapter reads the teacher's last hidden states, and a recorded teacher has only logits");
  const auto module = [&](const char* name) {
    const auto found = b.modules.find(name);
    return found == b.modules.end() ? Tensor() : found->second;
  };
  const PesfAdapter adapter{.w_direct = module("w_direct"),
                            .b_direct = module("b_direct"),
                            .w_down = module("w_down"),
                            .b_down = module("b_down"),
                            .w_up = module("w_up"),
                            .b_up = module("b_up")};
  Rows teacher = b.teacher;  // where the mask is false nothing may reach the adapter's gradient
  teacher.hidden = teacher.hidden.masked_fill(~b.mask.reshape({-1, 1}), 0);
  const Rows adapted = pesf_adapted(teacher, teacher.hidden, adapter, o, kept(teacher.hidden.size(0), b, o));
  const PesfLoss l = pesf_loss(b.student, adapted, teacher, b.labels, b.mask, o, b.tokens_in_step);
  return {.value = l.loss,
          .parts = {{"ce_student", l.ce_student},
                    {"kd_loss", l.kd},
                    {"ce_teacher", l.ce_teacher},
                    {"feature_loss", l.feature},
                    {"sharpness_gap", l.sharpness_teacher - l.sharpness_student},
                    {"sharpness_gap_centred", l.sharpness_teacher_centred - l.sharpness_student_centred}}};
}

const Registered pesf{
    distillation_method<PesfOptions>("pesf-kd")
        .summary("PESF-KD: a small trained adapter softens the teacher to what the student can follow")
        .formula("loss = gamma CE(student) + alpha T^2 KL(p || q) + delta CE(adapted teacher), means over tokens\n"
                 "p = softmax((t + a(h)) / T), a(h) = W_u relu(W_n h + b_n) + b_u; student and adapter both get the "
                 "gradient")
        .when("When the student is far smaller than the teacher. Keep delta above 0: without it the adapter is free to "
              "say what the student says. The teacher and the adapter are dropped after training.")
        .paper({"Parameter-Efficient and Student-Friendly Knowledge Distillation", "2205.15308", "IEEE TMM 2023"})
        .option("temperature", &PesfOptions::temperature, positive, "divides the logits of both models",
                "authors: 5, 6")
        .option("gamma", &PesfOptions::gamma, non_negative, "weight of the student's cross-entropy on the labels")
        .option("alpha", &PesfOptions::alpha, non_negative, "weight of the divergence", "authors: 1; text 0.7")
        .option("delta", &PesfOptions::delta, non_negative,
                "weight of the adapted teacher's cross-entropy on the labels")
        .option("kd", &PesfOptions::kd,
                {{"kl", Objective::kl}, {"mse_prob", Objective::mse_prob}, {"swap", Objective::swap}},
                "the divergence: forward KL, the mean squared error of probabilities, or KL to targets whose likeliest "
                "token and label are exchanged")
        .option("adapter-form", &PesfOptions::adapter,
                {{"parallel", Adapter::parallel}, {"serial", Adapter::serial}, {"bottleneck", Adapter::bottleneck}},
                "its form: a bottleneck alone, beside a linear layer, or after one", "authors: parallel for text")
        .option("sign", &PesfOptions::sign, {{"add", Sign::add}, {"subtract", Sign::subtract}},
                "whether it is added to the teacher's logits or subtracted")
        .option("rank", &PesfOptions::rank, at_least(1), "width of the bottleneck", "authors' text code")
        .option("adapter-lr", &PesfOptions::adapter_lr, positive, "the adapter's own learning rate",
                "authors' text code")
        .option("adapter-dropout", &PesfOptions::adapter_dropout, from_to_below(0, 1),
                "share of the bottleneck's numbers that are dropped in training", "authors' text code")
        .option("beta", &PesfOptions::beta, non_negative,
                "weight of the squared error between both models' normalised last hidden states")
        .needs([](const PesfOptions& o) {
          DistillationNeeds needs;
          needs.modules_rate = o.adapter_lr;
          return needs;
        })
        .modules(adapter_at_start)
        .loss(loss)};

}  // namespace
}  // namespace kullback
