// How the cases of reduced-vocab's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/plain_text.h"
#include "kullback/distill/reduced_vocab.h"
#include "kullback/distill/token_alignment.h"

namespace kullback {
namespace {

using at::Tensor;
using Names = std::vector<std::string>;
using Pool = ReducedVocabOptions::Pool;

ReducedVocabOptions options_of(const CheckCase& c) {
  Json given = c.options();
  for (const char* of_case : {"unk", "align", "loss"}) given.erase(of_case);
  if (given.contains("sum_probs")) given["sum_probs"] = given["sum_probs"] != 0 && given["sum_probs"] != false;
  if (c.options().contains("loss")) given["hidden_loss"] = c.options().at("loss");
  ReducedVocabOptions o;
  find_method("reduced-vocab").options->assign(&o, given, c.where());
  return o;
}

CheckOutputs split_case(CheckCase& c) {
  const auto teacher = c.input("teacher_vocab").get<Names>(), student = c.input("student_vocab").get<Names>(),
             special = c.input("special").get<Names>();
  const TokenMap map = split_tokens(teacher, student, special, c.option<std::string>("unk", "[UNK]"));
  return {{"t2s=" + Json(map).dump(), {}}, {"matched=" + Json(shared_tokens(teacher, student)).dump(), {}}};
}

Tensor flags(const std::vector<bool>& of) { return at::tensor(std::vector<int64_t>(of.begin(), of.end()), at::kLong); }

CheckOutputs align_case(CheckCase& c) {
  const TokenMatch match = match_tokens(c.input("teacher_tokens").get<Names>(), c.input("student_tokens").get<Names>());
  return {{"teacher_mask", flags(match.teacher)}, {"student_mask", flags(match.student)}};
}

CheckOutputs groups_case(CheckCase& c) {
  const auto ids = c.input("teacher_ids").get<std::vector<int64_t>>();
  const TokenGroups groups = group_tokens(ids, c.input("t2s").get<TokenMap>());
  return {{"student_ids", at::tensor(groups.student_ids)}, {"groups", padded_lists(groups.groups)}};
}

CheckOutputs init_case(CheckCase& c) {
  return {{"student_embedding", split_embedding(c.input("t2s").get<TokenMap>(), c.tensor("teacher_embedding"),
                                                c.tensor("student_embedding"))}};
}

AlignedRows rows_of(CheckCase& c, bool match, int64_t student_length) {
  const Tensor teacher = c.tensor("teacher_mask") == 1;
  return match ? matched_rows(c.tensor("student_mask") == 1, teacher)
               : reduced_rows(c.tensor("groups"), teacher, student_length);
}

Tensor shared_kl(CheckCase& c, const AlignedRows& rows) {
  return shared_columns_kl(fixture_rows(c, "student"), fixture_rows(c, "teacher"), rows, c.tensor("student_matched"),
                           c.tensor("teacher_matched"), options_of(c));
}

CheckOutputs kl_case(CheckCase& c, bool match) {
  const AlignedRows rows = rows_of(c, match, c.tensor("student_logits").size(1));
  return {{"loss", shared_kl(c, rows)}, {"rows", at::scalar_tensor(rows.teacher.size(0), at::kLong)}};
}

CheckOutputs map_case(CheckCase& c) {
  const AlignedRows rows = rows_of(c, false, c.tensor("student_logits").size(1));
  const Tensor loss = mapped_columns_kl(fixture_rows(c, "student"), fixture_rows(c, "teacher"), rows, c.tensor("t2s"),
                                        c.tensor("mapped_ids"), options_of(c));
  return {{"loss", loss}, {"rows", at::scalar_tensor(rows.teacher.size(0), at::kLong)}};
}

CheckOutputs total_case(CheckCase& c) {
  const ReducedVocabOptions o = options_of(c);
  const Tensor kl = shared_kl(c, rows_of(c, true, 0)), labels = c.tensor("mlm_labels");
  const PlainTextLoss lm = plain_text_loss(fixture_rows(c, "student"), {}, labels.clamp_min(0), labels >= 0, 0);
  return {{"loss", o.alpha_kl * kl + o.alpha_lm * lm.loss}, {"kl", kl.detach()}, {"lm", lm.ce_loss}};
}

CheckOutputs hidden_case(CheckCase& c) {
  const ReducedVocabOptions o = options_of(c);
  const auto layers = [&](const char* name) {  // [L,B,T,D] -> L of [B T,D]
    return c.tensor(name).flatten(1, 2).unbind(0);
  };
  const std::vector<Tensor> student = layers("student_hidden"), teacher = layers("teacher_hidden");
  const bool match = c.option<std::string>("align", "match") == "match";
  const AlignedRows rows = rows_of(c, match, c.tensor("student_hidden").size(2));
  const Tensor ours = pooled_rows(merged_layers(student, teacher.size(), o), rows.student, o.pool);
  const Tensor projected = at::matmul(ours, c.tensor("weight").t()) + c.tensor("bias");
  const Tensor theirs = merged_layers(teacher, student.size(), o).index_select(0, rows.teacher);
  const HiddenDistance d = hidden_distance(projected, theirs, c.has("negatives") ? c.tensor("negatives") : Tensor(), o);
  CheckOutputs out{{"loss", d.loss}, {"rows", at::scalar_tensor(rows.teacher.size(0), at::kLong)}};
  if (d.positive_cosine.defined()) out["positive_cosine"] = d.positive_cosine;
  return out;
}

const RegisteredCheck split_check{"reduced-vocab", "split", split_case};
const RegisteredCheck align_check{"reduced-vocab", "align", align_case};
const RegisteredCheck groups_check{"reduced-vocab", "groups", groups_case};
const RegisteredCheck init_check{"reduced-vocab", "init", init_case};
const RegisteredCheck match_check{"reduced-vocab", "match_kl", [](CheckCase& c) { return kl_case(c, true); }};
const RegisteredCheck reduce_check{"reduced-vocab", "reduce_match_kl", [](CheckCase& c) { return kl_case(c, false); }};
const RegisteredCheck map_check{"reduced-vocab", "reduce_map_kl", map_case};
const RegisteredCheck total_check{"reduced-vocab", "total", total_case};
const RegisteredCheck hidden_check{"reduced-vocab", "hidden", hidden_case};

}  // namespace
}  // namespace kullback
