// How the cases of distillm's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/distillm_schedule.h"
#include "kullback/distill/fixture_rows.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs loss_case(CheckCase& c) {
  const DistillmOptions o = fixture_options<DistillmOptions>(c, "distillm");
  Responses b, text;
  b.student = fixture_rows(c, "student"), b.teacher = fixture_rows(c, "teacher"), b.mask = c.mask("mask");
  if (c.has("labels")) b.labels = c.tensor("labels");
  if (c.has("pretrain_logits")) {
    text.student = fixture_rows(c, "pretrain");
    text.labels = c.tensor("pretrain_labels"), text.mask = c.mask("pretrain_mask");
  }
  const DistillmLoss l = distillm_loss(b, text, o);
  CheckOutputs out{{"loss", l.loss},
                   {"kd_loss", l.kd_loss},
                   {"per_token", l.per_token},
                   {"cross_entropy_form", cross_entropy_form(b, o)},
                   {"max_ratio", largest_ratio(b, o)}};
  if (l.ce_loss.defined()) out["ce_loss"] = l.ce_loss;
  if (l.pretrain_loss.defined()) out["pretrain_loss"] = l.pretrain_loss;
  return out;
}

std::vector<double> numbers(CheckCase& c, const std::string& name) {
  const Tensor t = c.tensor(name).to(at::kDouble).contiguous();
  return {t.const_data_ptr<double>(), t.const_data_ptr<double>() + t.numel()};
}

CheckOutputs threshold_case(CheckCase& c) {
  const DistillmOptions o = fixture_options<DistillmOptions>(c, "distillm");
  const std::vector<double> losses = numbers(c, "val_losses");
  AdaptiveThreshold t{.threshold = o.init_threshold, .previous = losses.at(0)};
  std::vector<double> thresholds;
  for (size_t i = 1; i < losses.size(); ++i) {
    t.observe(losses[i], o);
    thresholds.push_back(t.threshold);
  }
  return {{"thresholds", at::tensor(thresholds, at::kDouble)}};
}

CheckOutputs trace_case(CheckCase& c) {
  DistillmOptions o;
  Json options = c.options();
  options.erase("total_steps"), options.erase("batch_size");
  find_method("distillm").options->assign(&o, options, c.where());
  const auto steps = c.option<int64_t>("total_steps", 1), batch = c.option<int64_t>("batch_size", 1);
  const std::vector<double> uniforms = numbers(c, "uniforms"), thresholds = numbers(c, "thresholds");
  std::vector<double> actions, sizes, fresh;
  int64_t buffered = 0;
  for (size_t i = 0; i < uniforms.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    const DistillmAction action = distillm_action(uniforms[i], thresholds[i], step, steps, buffered, o);
    if (action == DistillmAction::fresh) buffered = std::min(buffered + batch, o.capacity);
    actions.push_back(static_cast<double>(action));
    sizes.push_back(static_cast<double>(buffered));
    fresh.push_back(fresh_probability(thresholds[i], step, steps, o));
  }
  return {{"actions", at::tensor(actions, at::kDouble)},
          {"buffer_sizes", at::tensor(sizes, at::kDouble)},
          {"fresh_probability", at::tensor(fresh, at::kDouble)}};
}

const RegisteredCheck loss_check{"distillm", "loss", loss_case};
const RegisteredCheck threshold_check{"distillm", "threshold", threshold_case};
const RegisteredCheck trace_check{"distillm", "trace", trace_case};

}  // namespace
}  // namespace kullback
