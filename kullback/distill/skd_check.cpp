// How the cases of skd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/skd.h"

namespace kullback {
namespace {

using at::Tensor;

std::span<const double> row(const Tensor& table, int64_t i) {
  return {table.const_data_ptr<double>() + i * table.size(1), static_cast<size_t>(table.size(1))};
}

/// The method's options among a case's, with the fixtures' own sampling where the case names none.
SkdOptions options_of(const CheckCase& c) {
  SkdOptions o{.student_temperature = 1, .student_top_p = 1, .teacher_temperature = 1, .teacher_top_p = 1};
  Json given = c.options();
  for (const char* of_case : {"max_length", "eos", "start", "passes"}) given.erase(of_case);
  find_method("skd").options->assign(&o, given, c.where());
  return o;
}

/// One response of two first-order models, proposals and replacements by given uniforms of each place.
struct Interleaved {
  std::vector<int64_t> tokens, previous, replaced, proposed, accepted;
};
Interleaved interleaved(CheckCase& c, const SkdOptions& o, int64_t block) {
  const Tensor teacher = c.tensor("teacher_table").to(at::kDouble).contiguous();
  const Tensor student = c.tensor("student_table").detach().to(at::kDouble).contiguous();
  const Tensor u_student = c.tensor("u_student"), u_teacher = c.tensor("u_teacher");
  const auto most = c.option<int64_t>("max_length", 1), end = c.option<int64_t>("eos", -1);
  Interleaved r;
  r.previous = {c.option<int64_t>("start", 0)};
  const auto length = [&] { return std::ssize(r.tokens); };
  bool over = false;
  for (int64_t pass = 0; !over && length() < most; ++pass) {
    std::vector<int32_t> drafted;
    for (int64_t last = r.previous.back(), t = length(); std::ssize(drafted) < block && t < most; ++t) {
      std::vector<double> law(row(student, last).begin(), row(student, last).end());
      filter(law, {}, {.temperature = o.student_temperature, .top_p = o.student_top_p});
      drafted.push_back(draw(softmax(law), u_student[t].item<double>()));
      last = drafted.back();
      if (last == end) break;
    }
    r.proposed.push_back(std::ssize(drafted)), r.accepted.push_back(0);
    for (const int32_t proposed : drafted) {
      const double u = u_teacher[length()].item<double>();
      const int32_t token = skd_token(row(teacher, r.previous.back()), proposed, pass, u, o);
      const bool kept = skd_accepts(row(teacher, r.previous.back()), proposed, skd_top_k(pass, o), o);
      r.tokens.push_back(token), r.previous.push_back(token), r.replaced.push_back(kept ? 0 : 1);
      r.accepted.back() += kept;
      over = token == end;
      if (over || !kept) break;
    }
  }
  r.previous.pop_back();
  return r;
}

CheckOutputs response_case(CheckCase& c, bool blocks) {
  const SkdOptions o = options_of(c);
  const Interleaved r = interleaved(c, o, blocks ? o.block : 1);
  const auto most = c.option<int64_t>("max_length", 1), count = std::ssize(r.tokens);
  const auto padded = [&](const std::vector<int64_t>& values) {
    return at::constant_pad_nd(at::tensor(values, at::kLong), {0, most - count});
  };
  const Tensor mask = (at::arange(most) < count).unsqueeze(0), previous = padded(r.previous);
  Rows student, teacher;
  student.hidden = c.tensor("student_table").to(at::kDouble).index_select(0, previous);
  teacher.hidden = c.tensor("teacher_table").to(at::kDouble).index_select(0, previous);
  const KdLoss l = kd_loss(student, teacher, {}, mask, skd_divergence(o));
  const Tensor replaced = at::tensor(r.replaced, at::kLong);
  return {{"tokens", padded(r.tokens)},
          {"mask", mask[0]},
          {"replaced", padded(r.replaced)},
          {"acceptance", 1 - replaced.to(at::kDouble).mean()},
          {"block_proposed", at::tensor(r.proposed, at::kLong)},
          {"block_accepted", at::tensor(r.accepted, at::kLong)},
          {"per_token", l.per_token[0]},
          {"loss", l.loss}};
}

CheckOutputs accept_case(CheckCase& c) {
  const SkdOptions o = options_of(c);
  const Tensor teacher = c.tensor("teacher_logits").to(at::kDouble).contiguous(), proposals = c.tensor("proposals");
  Tensor ranks = at::empty_like(proposals), accepted = at::empty_like(proposals);
  for (int64_t i = 0; i < proposals.numel(); ++i) {
    const auto token = proposals[i].item<int32_t>();
    ranks[i] = teacher_rank(row(teacher, i), token);
    accepted[i] = skd_accepts(row(teacher, i), token, o.top_k, o) ? 1 : 0;
  }
  return {{"teacher_rank", ranks}, {"accepted", accepted}};
}

CheckOutputs decay_case(CheckCase& c) {
  SkdOptions o = options_of(c);
  o.k_decay = true;
  std::vector<int64_t> after;
  for (int64_t pass = 0; pass < c.option<int64_t>("passes", 0); ++pass) after.push_back(skd_top_k(pass + 1, o));
  return {{"top_k", at::tensor(after, at::kLong)}};
}

const RegisteredCheck sequential_check{"skd", "sequential", [](CheckCase& c) { return response_case(c, false); }};
const RegisteredCheck block_check{"skd", "block", [](CheckCase& c) { return response_case(c, true); }};
const RegisteredCheck accept_check{"skd", "accept", accept_case};
const RegisteredCheck decay_check{"skd", "decay", decay_case};

}  // namespace
}  // namespace kullback
