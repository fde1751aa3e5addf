#include "kullback/divergence/row_blocks.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/divergence/head_input.h"

namespace kullback {
namespace {

using at::Tensor;

at::ScalarType computing_type(const Rows& rows) {
  return rows.hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// [n,V] logits of the rows' hidden states [n,D], as the law sees them.
Tensor logits_of(const Rows& rows, const Tensor& hidden, const Tensor& weight, const Tensor& bias) {
  const int64_t vocabulary = detail::real_vocabulary(rows);
  Tensor z = weight.defined() ? at::matmul(hidden, weight.narrow(0, 0, vocabulary).t())
                              : (rows.make ? rows.make(hidden) : hidden).narrow(1, 0, vocabulary);
  z = z.to(computing_type(rows));
  if (bias.defined()) z = z + bias.narrow(0, 0, vocabulary);
  if (rows.softcap > 0) z = rows.softcap * at::tanh(z / rows.softcap);
  return rows.temperature == 1 ? z : z / rows.temperature;
}

/// Rows a block: logits of both models, their gradients and a few temporaries of their size.
int64_t block_rows(const Rows& student, const Rows& teacher, int64_t memory) {
  const int64_t number = computing_type(student) == at::kDouble ? 8 : 4;
  const int64_t width = detail::real_vocabulary(student) + detail::real_vocabulary(teacher);
  return std::max<int64_t>(1, memory / (6 * width * number));
}

struct Gradients {
  Tensor hidden, weight, bias;
};

bool wants(const Tensor& t) { return t.defined() && t.requires_grad(); }

/// A leaf of its own that has the same numbers.
Tensor leaf(const Tensor& t, bool differentiable) {
  return t.defined() ? t.detach().requires_grad_(differentiable) : t;
}

/// Values of all rows, and where there are weights the gradients of their weighted sum.
Tensor walk(const Rows& student, const Rows& teacher, const RowFunction& f, const Tensor& weights, int64_t memory,
            Gradients* gradients) {
  const int64_t rows = student.hidden.size(0), block = block_rows(student, teacher, memory);
  const Tensor weight = leaf(student.weight, gradients != nullptr && wants(student.weight));
  const Tensor bias = leaf(student.bias, gradients != nullptr && wants(student.bias));
  std::vector<Tensor> values, hidden_gradients;
  for (int64_t from = 0; from < rows; from += block) {
    const int64_t count = std::min(block, rows - from);
    const Tensor hidden = leaf(student.hidden.narrow(0, from, count), gradients != nullptr);
    Tensor theirs;
    {
      const at::NoGradGuard no_grad;
      theirs = logits_of(teacher, teacher.hidden.narrow(0, from, count), teacher.weight, teacher.bias);
    }
    const at::AutoGradMode mode(gradients != nullptr);
    const Tensor value = f(logits_of(student, hidden, weight, bias), theirs, from);
    values.push_back(value.detach());
    if (gradients == nullptr) continue;
    const Tensor w = weights.narrow(0, from, count).to(value.scalar_type());
    const Tensor sum = value.masked_fill(w == 0, 0).mul(w).sum();
    if (sum.requires_grad()) sum.backward();
    const Tensor g = hidden.grad().defined() ? hidden.grad() : at::zeros_like(hidden);
    const Tensor counted = value.dim() == 1 ? w != 0 : (w != 0).any(1);
    hidden_gradients.push_back(g.masked_fill(~counted.unsqueeze(1), 0));
  }
  if (gradients != nullptr) {
    gradients->hidden = rows > 0 ? at::cat(hidden_gradients) : at::zeros_like(student.hidden);
    if (wants(student.weight)) gradients->weight = weight.grad().defined() ? weight.grad() : at::zeros_like(weight);
    if (wants(student.bias)) gradients->bias = bias.grad().defined() ? bias.grad() : at::zeros_like(bias);
  }
  return rows > 0 ? at::cat(values) : at::zeros({0}, at::TensorOptions(computing_type(student)));
}

/// Hands over gradients that are made already.
struct MadeGradients : torch::autograd::Function<MadeGradients> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& hidden,
                        const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, const Tensor& loss,
                        const Gradients& made) {
    (void)hidden, (void)weight, (void)bias;
    context->save_for_backward({made.hidden, made.weight, made.bias});
    return loss.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto made = context->get_saved_variables();
    const auto scaled = [&](const Tensor& g) { return g.defined() ? g * upstream[0].to(g.scalar_type()) : g; };
    return {scaled(made[0]), scaled(made[1]), scaled(made[2]), {}, {}};
  }
};

void check(const Rows& student, const Rows& teacher) {
  if (student.hidden.size(0) != teacher.hidden.size(0)) {
    fail("the student has {} rows and the teacher {}", student.hidden.size(0), teacher.hidden.size(0));
  }
}

std::optional<Tensor> if_defined(const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

}  // namespace

RowBlockLoss row_block_loss(const Rows& student, const Rows& teacher, const RowFunction& f, const Tensor& weights,
                            int64_t memory) {
  check(student, teacher);
  RowBlockLoss result;
  const bool differentiable =
      at::GradMode::is_enabled() && (wants(student.hidden) || wants(student.weight) || wants(student.bias));
  Gradients made;
  result.values = walk(student, teacher, f, weights, memory, differentiable ? &made : nullptr);
  if (student.hidden.size(0) == 0) result.values = result.values.reshape(weights.sizes());  // f was never asked
  const Tensor w = weights.to(result.values.scalar_type());
  result.loss = result.values.masked_fill(w == 0, 0).mul(w).sum();
  if (differentiable) {
    result.loss =
        MadeGradients::apply(student.hidden, if_defined(student.weight), if_defined(student.bias), result.loss, made);
  }
  return result;
}

Tensor row_block_values(const Rows& student, const Rows& teacher, const RowFunction& f, int64_t memory) {
  check(student, teacher);
  return walk(student, teacher, f, {}, memory, nullptr);
}

Tensor row_divergence(const RowDivergence& divergence, const Tensor& policy, const Tensor& reference) {
  Rows ours, theirs;
  ours.hidden = policy.reshape({-1, policy.size(-1)});
  theirs.hidden = reference.reshape({-1, reference.size(-1)});
  HeadRequest request;
  request.divergences = {divergence};
  return head_statistics(ours, theirs, request).divergences[0];
}

Tensor row_logits(const Rows& rows, int64_t first, int64_t count) {
  const at::NoGradGuard no_grad;
  return logits_of(rows, rows.hidden.narrow(0, first, count), rows.weight, rows.bias);
}

Rows rows_at(Rows rows, const Tensor& places) {
  rows.hidden = rows.hidden.index_select(0, places);
  return rows;
}

}  // namespace kullback
