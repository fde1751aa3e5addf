#include "kullback/rewards/reward_model.h"

#include <algorithm>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

using at::Tensor;

std::vector<int32_t> conversation_ids(const Model& model, const PromptedResponse& one) {
  std::vector<Message> messages = one.prompt;
  messages.push_back({"assistant", one.response});
  if (model.chat) return model.text().encode(model.chat->render(messages, /*add_generation_prompt=*/false));
  std::string text;
  for (const Message& message : messages) text += message.content;
  return model.text().add_special(model.text().encode(text));
}

/// The score at each conversation's last token.
std::vector<double> scores_of(const ClassificationModel& scored, const std::vector<std::vector<int32_t>>& ids) {
  const at::NoGradGuard no_grad;
  const Tensor hidden = scored.model.transformer.hidden(ragged(ids));  // [N,D]
  std::vector<int64_t> last;
  int64_t end = 0;
  for (const auto& one : ids) last.push_back((end += std::ssize(one)) - 1);
  Tensor scores = at::matmul(hidden.index_select(0, at::tensor(last, at::kLong)), scored.head.t());  // [B,1]
  if (scored.bias.defined()) scores = scores + scored.bias;
  const Tensor flat = scores.flatten().to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace

Reward::Scores reward_model(const std::string& folder) {
  auto scored = std::make_shared<const ClassificationModel>(read_classification_folder(folder));
  if (scored->head.size(0) != 1)
    fail("reward model: {} has {} labels, and a reward is one number", folder, scored->head.size(0));
  return [scored](std::span<const PromptedResponse> responses) {
    constexpr size_t together = 8;
    std::vector<double> rewards;
    for (size_t begin = 0; begin < responses.size(); begin += together) {
      std::vector<std::vector<int32_t>> ids;
      for (const PromptedResponse& one : responses.subspan(begin, std::min(together, responses.size() - begin)))
        ids.push_back(conversation_ids(scored->model, one));
      const std::vector<double> part = scores_of(*scored, ids);
      rewards.insert(rewards.end(), part.begin(), part.end());
    }
    return rewards;
  };
}

}  // namespace kullback
