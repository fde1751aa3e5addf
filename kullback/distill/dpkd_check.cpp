// How the cases of dpkd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/dpkd.h"
#include "kullback/distill/fixture_rows.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

Responses responses(CheckCase& c, const std::string& student, const std::string& teacher, const std::string& labels,
                    const std::string& mask) {
  Responses r;
  if (!c.has(labels)) return r;
  r.student = fixture_rows(c, student);
  if (!teacher.empty()) r.teacher = fixture_rows(c, teacher);
  r.labels = c.tensor(labels), r.mask = c.mask(mask);
  return r;
}

CheckOutputs outputs(CheckCase& c, const DpkdLoss& preference, const Responses& response, const DpkdOptions& o) {
  const Responses text = responses(c, "pretrain_student", "pretrain_teacher", "pretrain_labels", "pretrain_mask");
  const DpkdObjective whole = dpkd_objective(preference.loss, response, text, o);
  CheckOutputs out{{"loss", whole.loss},
                   {"kd_loss", preference.loss.detach()},
                   {"chosen_rewards", preference.chosen_rewards},
                   {"rejected_rewards", preference.rejected_rewards},
                   {"preference_accuracy", preference.accuracy}};
  if (whole.lm_loss.defined()) out["lm_loss"] = whole.lm_loss;
  if (whole.pretrain_loss.defined()) out["pretrain_loss"] = whole.pretrain_loss;
  return out;
}

CheckOutputs sequence_case(CheckCase& c) {
  const DpkdOptions o = fixture_options<DpkdOptions>(c, "dpkd");
  const auto side = [&](const std::string& name) {
    return Side{.logps = c.tensor("policy_" + name + "_logps"),
                .reference_logps = c.tensor("reference_" + name + "_logps"),
                .mask = c.mask(name + "_mask"),
                .divergences = {}};
  };
  const DpkdLoss l = dpkd_sequence_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}}, o);
  CheckOutputs out = outputs(c, l, responses(c, "lm", "", "lm_labels", "lm_mask"), o);
  out["per_pair"] = l.losses;
  out["margins"] = l.chosen_rewards - l.rejected_rewards;
  return out;
}

CheckOutputs token_case(CheckCase& c) {
  const DpkdOptions o = fixture_options<DpkdOptions>(c, "dpkd");
  const Rows student = fixture_rows(c, "student"), teacher = fixture_rows(c, "teacher");
  const Tensor mask = c.mask("mask");
  const DpkdLoss l = dpkd_token_loss(student, teacher, mask, o);
  CheckOutputs out = outputs(c, l, responses(c, "student", "", "labels", "mask"), o);
  const auto likeliest = [&](const Rows& rows) {
    HeadRequest request;
    request.top_k = 1;
    return head_statistics(rows, request).top_ids.reshape(mask.sizes());
  };
  out.insert({{"per_token", l.losses},
              {"agreement", l.agreement},
              {"teacher_tokens", likeliest(teacher)},
              {"student_tokens", likeliest(student)}});
  return out;
}

CheckOutputs exact_world_case(CheckCase& c) {
  const double beta = c.option("beta", 0.5);
  const Tensor teacher = at::log_softmax(c.tensor("teacher_sequence_logits").to(at::kDouble), 0);
  const Tensor rewards = c.tensor("rewards").to(at::kDouble);
  const Optimum best = optimum(teacher, rewards, beta);
  const Tensor implicit = beta * (best.logps - teacher) + beta * best.log_partition;
  const Tensor kl = response_divergence(divergence("kl").from_policy(), best.logps.unsqueeze(0), teacher.unsqueeze(0));
  return {{"optimal_logps", best.logps},
          {"log_partition", best.log_partition},
          {"implicit_rewards", implicit},
          {"objective", expectation(best.logps, rewards) - beta * kl[0]}};
}

const RegisteredCheck sequence_check{"dpkd", "sequence", sequence_case};
const RegisteredCheck token_check{"dpkd", "token", token_case};
const RegisteredCheck world_check{"dpkd", "exact_world", exact_world_case};

}  // namespace
}  // namespace kullback
