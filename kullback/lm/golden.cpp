#include "kullback/lm/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/layout.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/score.h"

namespace kullback {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;

// A batch of the file without its padding: a padded batch is only another way to say the same.
struct Batch {
  Sequences sequences;
  std::vector<int64_t> first_positions;  // of each sequence
  int64_t context = 0;                   // the largest position of the whole batch, and one
};

Batch batch_of(const Json& golden, const std::string& source) {
  const Json& ids = golden.at("input_ids");
  const Json mask = golden.value("attention_mask", Json()), positions = golden.value("position_ids", Json());
  Batch batch;
  for (size_t row = 0; row < ids.size(); ++row) {
    std::vector<int32_t>& sequence = batch.sequences.emplace_back();
    for (size_t t = 0; t < ids[row].size(); ++t) {
      if (!mask.is_null() && mask.at(row).at(t) != 1) continue;
      const int64_t position = positions.is_null() ? static_cast<int64_t>(t) : positions.at(row).at(t).get<int64_t>();
      if (sequence.empty()) batch.first_positions.push_back(position);
      sequence.push_back(ids[row][t].get<int32_t>());
      batch.context = std::max(batch.context, position + 1);
    }
    if (sequence.empty()) fail("{}: row {} of input_ids has no token", source, row);
  }
  if (batch.sequences.empty()) fail("{}: input_ids has no row", source);
  return batch;
}

Ragged ragged_of(const Batch& batch) {
  Ragged result = ragged(batch.sequences);
  result.first_positions = batch.first_positions;
  result.context = batch.context;
  return result;
}

// Logits of the real positions: at pads the file has null. [N, V]
at::Tensor expected_logits(const Json& logits, const std::string& source) {
  std::vector<double> data;
  for (const Json& value : logits.at("data")) {
    if (!value.is_null()) data.push_back(value.get<double>());
  }
  const auto width = logits.at("shape").back().get<int64_t>();
  if (width <= 0 || static_cast<int64_t>(data.size()) % width != 0)
    fail("{}: {} logits are no rows of {}", source, data.size(), width);
  return at::tensor(data, at::kDouble).view({-1, width});
}

class Comparison {
 public:
  Comparison(const Json& golden, Model& model, std::string source)
      : golden_(golden), model_(model), source_(std::move(source)), tolerance_(golden.at("tolerance").get<double>()) {}

  std::vector<GoldenFigure> run() {
    check_batch(golden_, "");
    check_greedy();
    const Json padded = golden_.value("padded", Json::object());
    for (const auto& [side, rows] : padded.items()) check_batch(rows, side + " padding: ");
    if (golden_.contains("logits_merged")) check_merged();
    return std::move(figures_);
  }

 private:
  GoldenFigure& figure(const std::string& name) {
    return figures_.emplace_back(GoldenFigure{.name = name, .tolerance = tolerance_});
  }

  void add(GoldenFigure& figure, double ours, double expected, const std::string& at) const {
    double difference = std::fabs(ours - expected) / std::max(1.0, std::fabs(expected));
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference >= figure.largest_difference) figure.largest_difference = difference, figure.at = at;
    if (!(difference <= figure.tolerance)) figure.passed = false;
  }

  void compare_logits(const std::string& name, const at::Tensor& ours, const at::Tensor& expected) {
    GoldenFigure& result = figure(name);
    if (ours.sizes() != expected.sizes()) {
      fail("{}: {} has {} rows of {} numbers where the model makes {} of {}", source_, name, expected.size(0),
           expected.size(1), ours.size(0), ours.size(1));
    }
    const at::Tensor differences =
        ((ours.detach().to(at::kDouble) - expected).abs() / expected.abs().clamp_min(1)).view({-1});
    const int64_t worst = differences.argmax().item<int64_t>(), width = expected.size(1);
    add(result, ours.detach().to(at::kDouble).view({-1})[worst].item<double>(),
        expected.view({-1})[worst].item<double>(), fmt::format("token {}, entry {}", worst / width, worst % width));
  }

  at::Tensor logits(const Ragged& batch) const { return model_.transformer.logits(model_.transformer.hidden(batch)); }

  // Each row by itself: what is beside it changes nothing.
  at::Tensor row_by_row(const Batch& batch) const {
    std::vector<at::Tensor> rows;
    for (size_t i = 0; i < batch.sequences.size(); ++i)
      rows.push_back(logits(ragged_of({{batch.sequences[i]}, {batch.first_positions[i]}, batch.context})));
    return at::cat(rows);
  }

  // A first piece and then token by token, the rest of each row in a cache.
  at::Tensor through_a_cache(const Batch& batch) const {
    std::vector<at::Tensor> rows;
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      KvCache cache(model_.config().layers);
      const std::vector<int32_t>& all = batch.sequences[i];
      for (size_t begin = 0; begin < all.size();) {
        const size_t end = begin == 0 ? (all.size() + 1) / 2 : begin + 1;
        Ragged piece = ragged_of(
            {{{all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)}},
             {batch.first_positions[i] + static_cast<int64_t>(begin)},
             batch.context});
        piece.caches = {&cache};
        rows.push_back(logits(piece));
        begin = end;
      }
    }
    return at::cat(rows);
  }

  void check_batch(const Json& golden, const std::string& prefix) {
    const Batch batch = batch_of(golden, source_);
    const at::Tensor expected = expected_logits(golden.at("logits"), source_);
    const Ragged whole = ragged_of(batch);
    const at::Tensor all = logits(whole);
    compare_logits(prefix + "logits", all, expected);
    {
      const at::NoGradGuard no_grad;
      compare_logits(prefix + "logits of each row alone", row_by_row(batch), expected);
      compare_logits(prefix + "logits through a cache", through_a_cache(batch), expected);
    }
    const at::Tensor labels = next_tokens(whole);
    const at::Tensor logps = at::log_softmax(all, -1).gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor loss = -logps.masked_select(labels.ge(0)).mean();
    if (golden.contains("loss")) add(figure(prefix + "loss"), loss.item<double>(), golden["loss"].get<double>(), "");
    if (golden.contains("grad_norms")) check_gradients(loss, golden["grad_norms"], figure(prefix + "gradient norms"));
  }

  // Layers that share a tensor share its adapter in the file: the gradients of their copies of `a` add up, and those of
  // their rows of `b` lie one after another.
  std::map<std::string, double> adapter_gradient_norms() const {
    std::map<std::string, at::Tensor> sums;
    std::map<std::string, double> squares;
    for (const NamedTensor& named : model_.transformer.adapter()) {
      const std::string name = named.name.substr(0, named.name.find('['));
      const at::Tensor gradient = named.tensor.grad().to(at::kDouble);
      if (name.ends_with("lora_B.weight")) {
        squares[name] += gradient.square().sum().item<double>();
      } else {
        at::Tensor& sum = sums[name];
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
    std::map<std::string, double> norms;
    for (const auto& [name, sum] : sums) norms[name] = sum.norm().item<double>();
    for (const auto& [name, sum] : squares) norms[name] = std::sqrt(sum);
    return norms;
  }

  // Norms by the names of the file's tensors, in which the gradients lie as the weights do.
  std::map<std::string, double> gradient_norms() const {
    std::map<std::string, double> norms;
    const Transformer& transformer = model_.transformer;
    if (!transformer.adapter().empty()) return adapter_gradient_norms();
    for (StoredTensor& stored : stored_tensors(transformer, hugging_face_layout(transformer.config.model_type))) {
      double squares = 0;
      for (const at::Tensor& part : stored.parts) squares += part.grad().to(at::kDouble).square().sum().item<double>();
      norms[stored.name] = std::sqrt(squares);
    }
    return norms;
  }

  void check_gradients(const at::Tensor& loss, const Json& expected, GoldenFigure& result) {
    const std::vector<NamedTensor> trainable = model_.transformer.trainable();
    for (const NamedTensor& named : trainable) named.tensor.mutable_grad() = at::Tensor();
    torch::autograd::backward({loss}, {});
    const std::map<std::string, double> ours = gradient_norms();
    const auto head = std::string(hugging_face_layout(model_.config().model_type).embedding);
    const std::string body = head.substr(0, head.find('.') + 1);
    size_t matched = 0;
    for (const auto& [name, norm] : expected.items()) {
      auto found = ours.find(name);
      if (found == ours.end()) found = ours.find(body + name);  // files without the name of the model's body
      if (found == ours.end()) fail("{}: grad_norms names '{}', which the model does not have", source_, name);
      add(result, found->second, norm.get<double>(), name);
      ++matched;
    }
    if (matched != ours.size()) {
      result.passed = false;
      result.at = fmt::format("{} norms of {} tensors", matched, ours.size());
    }
    for (const NamedTensor& named : trainable) named.tensor.mutable_grad() = at::Tensor();
  }

  void compare_tokens(const std::string& name, const std::vector<int32_t>& ours, const std::vector<int32_t>& expected) {
    GoldenFigure& result = figure(name);
    result.tolerance = 0;
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), expected.begin(), expected.end());
    if (ours == expected) return;
    result.passed = false;
    result.largest_difference = std::numeric_limits<double>::infinity();
    result.at = mine == ours.end() || theirs == expected.end()
                    ? fmt::format("{} tokens, expected {}", ours.size(), expected.size())
                    : fmt::format("token {} is {}, expected {}", mine - ours.begin(), *mine, *theirs);
  }

  void check_greedy() {
    if (!golden_.contains("greedy")) return;
    const auto prompt = golden_.at("prompt").get<std::vector<int32_t>>(),
               expected = golden_["greedy"].get<std::vector<int32_t>>();
    GenerationOptions options;
    options.sampling.temperature = 0;
    options.max_new_tokens = static_cast<int64_t>(expected.size());
    compare_tokens("greedy tokens", generate(model_.transformer, {prompt}, options)[0].ids, expected);

    const at::NoGradGuard no_grad;
    std::vector<int32_t> all = prompt;
    for (size_t i = 0; i < expected.size(); ++i)
      all.push_back(static_cast<int32_t>(logits(ragged({all})).select(0, -1).argmax().item<int64_t>()));
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
    compare_tokens("greedy tokens without a cache", all, expected);
  }

  void check_merged() {
    merge_lora(model_.transformer);
    const at::NoGradGuard no_grad;
    compare_logits("logits, adapter merged", logits(ragged_of(batch_of(golden_, source_))),
                   expected_logits(golden_["logits_merged"], source_));
  }

  const Json& golden_;
  Model& model_;
  std::string source_;
  double tolerance_;
  std::vector<GoldenFigure> figures_;
};

}  // namespace

std::vector<GoldenFigure> golden_figures(const Json& golden, Model& model, const std::string& source) {
  for (const char* key : {"input_ids", "logits", "tolerance"}) {
    if (!golden.contains(key)) fail("{}: no '{}'", source, key);
  }
  if (golden.contains("greedy") && !golden.contains("prompt"))
    fail("{}: 'greedy' without the 'prompt' it continues", source);
  if (model.transformer.adapter().empty()) model.transformer.set_trainable(true);
  return Comparison(golden, model, source).run();
}

}  // namespace kullback
