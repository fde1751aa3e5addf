// How reduced-vocab trains two causal models: rows are aligned by the bytes that have been said before them.
#include <numeric>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/plain_text.h"
#include "kullback/distill/reduced_vocab.h"
#include "kullback/distill/token_alignment.h"

namespace kullback {
namespace {

using at::Tensor;
using O = ReducedVocabOptions;

/// What the two vocabularies have to do with each other; made once, then kept in the method's state.
struct Columns {
  Tensor student, teacher;  ///< [M] tokens that both spell alike
  Tensor map, mapped;       ///< [Vt,G] pieces of the teacher's tokens; [M'] those that have any
};
Columns columns_of(const DistillationBatch& b) {
  auto& kept = b.state->tensors;
  if (!kept.contains("map")) {
    if (b.student_tokenizer == nullptr || b.teacher_tokenizer == nullptr)
      fail("reduced-vocab needs the tokenizers of both models");
    const int64_t vocabulary = b.teacher.vocabulary > 0 ? b.teacher.vocabulary : b.teacher_tokenizer->vocabulary_size();
    std::vector<int64_t> student, teacher, mapped;
    for (const auto& [theirs, ours] : shared_tokens(*b.teacher_tokenizer, *b.student_tokenizer)) {
      if (theirs < vocabulary) teacher.push_back(theirs), student.push_back(ours);
    }
    if (student.empty()) fail("the two tokenizers have no token in common");
    const TokenMap map = split_tokens(*b.teacher_tokenizer, *b.student_tokenizer);
    for (int64_t y = 0; y < std::min(vocabulary, std::ssize(map)); ++y) {
      if (!map[static_cast<size_t>(y)].empty()) mapped.push_back(y);
    }
    kept["student columns"] = at::tensor(student), kept["teacher columns"] = at::tensor(teacher);
    kept["map"] = padded_lists(map), kept["mapped"] = at::tensor(mapped);
  }
  return {kept.at("student columns"), kept.at("teacher columns"), kept.at("map"), kept.at("mapped")};
}

/// reduce: the student reads what each of the teacher's tokens is split into, in the place of its own tokens.
std::vector<Response> responses(DistillationStep& step, const O& o) {
  std::vector<Response> all = step.run.data(step.examples);
  if (o.align_logits == O::AlignLogits::match && o.align_hidden != O::AlignHidden::reduce) return all;
  const Tokenizer& ours = *step.run.student_tokenizer();
  const Tokenizer& theirs = *step.run.teacher_tokenizer();
  for (Response& response : all) {
    std::vector<int32_t> end;
    if (!response.tokens.empty() && ours.is_special(response.tokens.back())) end = {response.tokens.back()};
    const std::string text = ours.decode(response.tokens, /*skip_special=*/true);
    response.tokens.clear();
    for (const int32_t token : response.teacher_tokens = theirs.encode(text, /*parse_special=*/false)) {
      const std::vector<int64_t> pieces = split_token(theirs, token, ours);
      response.tokens.insert(response.tokens.end(), pieces.begin(), pieces.end());
    }
    response.tokens.insert(response.tokens.end(), end.begin(), end.end());
    if (!end.empty() && theirs.eos()) response.teacher_tokens.push_back(*theirs.eos());
  }
  return all;
}

std::vector<int64_t> counted(const Tensor& labels, const Tensor& mask) {
  const Tensor ids = labels.masked_select(mask).contiguous();
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

/// match: rows before which both models have said the same bytes.
AlignedRows by_prefix(const DistillationBatch& b) {
  Tensor ours = at::zeros_like(b.mask), theirs = at::zeros_like(b.teacher_mask);
  for (int64_t i = 0; i < b.mask.size(0); ++i) {
    const TokenMatch match = match_prefixes(*b.teacher_tokenizer, counted(b.teacher_labels[i], b.teacher_mask[i]),
                                            *b.student_tokenizer, counted(b.labels[i], b.mask[i]));
    for (size_t t = 0; t < match.student.size(); ++t) ours[i][static_cast<int64_t>(t)] = bool(match.student[t]);
    for (size_t t = 0; t < match.teacher.size(); ++t) theirs[i][static_cast<int64_t>(t)] = bool(match.teacher[t]);
  }
  return matched_rows(ours, theirs);
}

/// reduce: each of the teacher's rows with all rows of the student since the teacher's row before, where the last of them has
/// said the same bytes.
AlignedRows by_group(const DistillationBatch& b) {
  std::vector<std::vector<int64_t>> groups;
  const int64_t length = b.teacher_mask.size(1);
  for (int64_t i = 0; i < b.mask.size(0); ++i) {
    const TokenMatch match = match_prefixes(*b.teacher_tokenizer, counted(b.teacher_labels[i], b.teacher_mask[i]),
                                            *b.student_tokenizer, counted(b.labels[i], b.mask[i]));
    size_t ours = 0;
    for (int64_t t = 0; t < length; ++t) {
      std::vector<int64_t> group;
      if (t < std::ssize(match.teacher) && match.teacher[static_cast<size_t>(t)]) {
        do group.push_back(static_cast<int64_t>(ours));
        while (!match.student[ours++]);
      }
      groups.push_back(std::move(group));
    }
  }
  const Tensor padded = padded_lists(groups);
  return reduced_rows(padded.reshape({b.mask.size(0), length, padded.size(1)}), b.teacher_mask, b.mask.size(1));
}

/// [N,n]: for each row n others, uniform and distinct.
Tensor negative_rows(int64_t rows, const O& o, RandomStream random) {
  const int64_t others = std::max<int64_t>(rows - 1, 0),
                count = o.n_negatives < 0 ? others : std::min(o.n_negatives, others);
  std::vector<int64_t> order(static_cast<size_t>(others)), drawn;
  std::iota(order.begin(), order.end(), 0);
  for (int64_t j = 0; j < rows; ++j) {
    for (int64_t k = 0; k < count; ++k) {  // the beginning of a shuffle
      std::swap(order[static_cast<size_t>(k)],
                order[static_cast<size_t>(k) + random.below(static_cast<uint64_t>(others - k))]);
      const int64_t other = order[static_cast<size_t>(k)];
      drawn.push_back(other + (other >= j ? 1 : 0));
    }
  }
  return at::tensor(drawn, at::kLong).reshape({rows, count});
}

Tensor logits_loss(const DistillationBatch& b, const AlignedRows& rows, const O& o) {
  const Columns columns = columns_of(b);
  return o.align_logits == O::AlignLogits::reduce_map
             ? mapped_columns_kl(b.student, b.teacher, rows, columns.map, columns.mapped, o)
             : shared_columns_kl(b.student, b.teacher, rows, columns.student, columns.teacher, o);
}

Tensor hidden_loss(const DistillationBatch& b, const AlignedRows& rows, const O& o) {
  const auto& teacher = b.teacher_layers;
  const Tensor ours = pooled_rows(merged_layers(b.student_layers, teacher.size(), o), rows.student, o.pool);
  const Tensor projected = at::matmul(ours, b.modules.at("projection.weight").t()) + b.modules.at("projection.bias");
  const Tensor theirs = merged_layers(teacher, b.student_layers.size(), o).index_select(0, rows.teacher);
  const Tensor negatives =
      negative_rows(rows.teacher.size(0), o, RandomStream(b.seed, "reduced-vocab", static_cast<uint64_t>(b.step)));
  return hidden_distance(projected, theirs, negatives, o).loss;
}

DistillationLoss loss(const DistillationBatch& given, const O& o) {
  DistillationBatch b = given;
  if (!b.teacher_mask.defined()) b.teacher_mask = b.mask, b.teacher_labels = b.labels;  // one tokenizer after all
  const bool match_logits = o.align_logits == O::AlignLogits::match,
             match_hidden = o.align_hidden == O::AlignHidden::match;
  const AlignedRows rows = match_logits ? by_prefix(b) : by_group(b);
  // A batch that is a part of its step counts as its tokens do.
  const double share = b.tokens_in_step > 0 ? b.mask.sum().item<double>() / b.tokens_in_step : 1;
  const Tensor kl = logits_loss(b, rows, o);
  const PlainTextLoss lm = plain_text_loss(b.student, {}, b.labels, b.mask, 0, b.tokens_in_step);
  DistillationLoss result{.value = o.alpha_kl * share * kl + o.alpha_lm * lm.loss,
                          .parts = {{"kl_loss", share * kl.detach()}, {"lm_loss", lm.ce_loss}}};
  result.parts["aligned_rows"] =
      at::scalar_tensor(static_cast<double>(rows.teacher.size(0)) / std::max(1.0, b.teacher_mask.sum().item<double>()))
          .unsqueeze(0);
  if (o.align_hidden != O::AlignHidden::none) {
    const AlignedRows of_hidden = match_hidden == match_logits ? rows : match_hidden ? by_prefix(b) : by_group(b);
    const Tensor hidden = hidden_loss(b, of_hidden, o);
    const double weight = o.hidden_loss == O::HiddenLoss::mse ? o.alpha_mse : o.alpha_con;
    result.value = result.value + weight * share * hidden;
    result.parts["hidden_loss"] = share * hidden.detach();
  }
  return result;
}

Modules projection(const DistillationSizes& sizes, const O& o) {
  if (o.align_hidden == O::AlignHidden::none) return {};
  RandomStream stream(sizes.seed, "reduced-vocab/projection");
  Tensor weight = at::empty({sizes.teacher_width, sizes.student_width}, at::kFloat);
  const double deviation = 1 / std::sqrt(static_cast<double>(sizes.student_width));
  float* numbers = weight.mutable_data_ptr<float>();
  for (int64_t i = 0; i < weight.numel(); ++i) numbers[i] = static_cast<float>(deviation * stream.normal());
  return {{"projection.weight", weight}, {"projection.bias", at::zeros({sizes.teacher_width}, at::kFloat)}};
}

void validate(const O& o) {
  const bool hidden = o.align_hidden != O::AlignHidden::none, mse = o.hidden_loss == O::HiddenLoss::mse;
  if (hidden && (mse ? o.alpha_mse : o.alpha_con) == 0)
    fail("option --align-hidden: --{} is 0; 0.1 is usual", mse ? "alpha-mse" : "alpha-con");
  if (!hidden && o.alpha_mse + o.alpha_con > 0)
    fail("option --{}: it weighs nothing without --align-hidden", o.alpha_mse > 0 ? "alpha-mse" : "alpha-con");
}

DistillationNeeds needs(const O& o) {
  DistillationNeeds needs;
  needs.other_tokenizer = true;
  needs.layers = o.align_hidden != O::AlignHidden::none;
  return needs;
}

const Registered reduced_vocab{
    distillation_method<O>("reduced-vocab")
        .summary("Distil into a student of a much smaller vocabulary: KL over what two tokenizations have in common")
        .formula(
            "loss = alpha_kl T^2 mean over aligned rows of KL(p || q) + alpha_lm CE + alpha_mse MSE + alpha_con CON\n"
            "p, q: softmax(logits / T) over common columns alone\n"
            "match: rows before which the same text stands, tokens that both vocabularies have\n"
            "reduce: the student's rows of each teacher token, pooled; reduce_map: a teacher token's logit is made of "
            "those of the student's pieces of it")
        .when(
            "When embeddings are most of a small student and a vocabulary of its own pays. match needs nothing of the "
            "student's tokenization but common boundaries; with reduce, pool last is right for causal models, as "
            "earlier rows of a group speak of the token itself.")
        .paper({"Knowledge Distillation of Russian Language Models with Reduction of Vocabulary", "2205.02340", ""})
        .option("align-logits", &O::align_logits,
                {{"match", O::AlignLogits::match},
                 {"reduce", O::AlignLogits::reduce},
                 {"reduce_map", O::AlignLogits::reduce_map}},
                "how rows and columns of the logits are aligned", "authors")
        .option("align-hidden", &O::align_hidden,
                {{"none", O::AlignHidden::none}, {"match", O::AlignHidden::match}, {"reduce", O::AlignHidden::reduce}},
                "how rows of the hidden states are", "authors")
        .option("hidden-loss", &O::hidden_loss,
                {{"mse", O::HiddenLoss::mse}, {"contrastive", O::HiddenLoss::contrastive}}, "distance of hidden states")
        .option("pool", &O::pool, {{"sum", O::Pool::sum}, {"mean", O::Pool::mean}, {"last", O::Pool::last}},
                "reduce: what becomes of the student's rows of one teacher token", "authors' code")
        .option("sum-probs", &O::sum_probs,
                "reduce_map: a teacher token's logit is the log-sum-exp over its pieces, not their sum",
                "authors' script")
        .option("temperature", &O::temperature, positive, "divides both models' logits in the KL", "authors")
        .option("alpha-kl", &O::alpha_kl, non_negative, "weight of the KL", "authors' scripts")
        .option("alpha-lm", &O::alpha_lm, non_negative, "weight of the student's own cross-entropy", "authors' scripts")
        .option("alpha-mse", &O::alpha_mse, non_negative, "weight of the squared distance", "authors' scripts: 0.1")
        .option("alpha-con", &O::alpha_con, non_negative, "weight of the contrastive distance", "authors' scripts: 0.1")
        .option("n-negatives", &O::n_negatives, at_least(-1), "contrastive: other rows; -1: all", "authors' script")
        .option("negatives-from", &O::negatives_from,
                {{"student", O::NegativesFrom::student}, {"teacher", O::NegativesFrom::teacher}},
                "contrastive: whose rows those are", "authors' script")
        .option("layer-merge", &O::layer_merge,
                {{"average", O::LayerMerge::average},
                 {"last", O::LayerMerge::last},
                 {"skip", O::LayerMerge::skip},
                 {"ids", O::LayerMerge::ids}},
                "which layers' mean is compared; skip: as many of each model as both have, evenly spaced", "authors")
        .option("layer-ids", &O::layer_ids, any_number, "ids: which; 0 the embeddings, -1 the last")
        .needs(needs)
        .validate(validate)
        .modules(projection)
        .responses(responses)
        .loss(loss)};

}  // namespace
}  // namespace kullback
