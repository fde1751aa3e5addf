#include "kullback/lm/generate_together.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/lm/naive_test.h"

namespace kullback {
namespace {

using test::tiny_config;
using test::tiny_transformer;

const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4}, {5, 6}};

/// Keeps the student's token where the teacher has it among its first three; else the teacher's draw.
Together interleaved(int64_t block) {
  const auto settle = [](const TogetherPlace& at) -> SettledToken {
    int64_t rank = 0;
    for (const float logit : at.teacher) rank += logit > at.teacher[static_cast<size_t>(at.proposed)];
    if (rank < 3) return {at.proposed, 0};
    return {draw(next_token_law(at.teacher, {}), at.uniform), 0};
  };
  return {.student = {}, .block = block, .settle = settle};
}

TEST(GenerateTogether, TheLengthOfABlockChangesNothing) {
  const Transformer student = tiny_transformer(tiny_config(), 1), teacher = tiny_transformer(tiny_config(), 2);
  const GenerationOptions options{.sampling = {}, .max_new_tokens = 24, .stop_ids = {0}, .seed = 5, .streams = {}};
  const auto one = generate_together(student, teacher, prompts, options, interleaved(1));
  bool kept = false, replaced = false;
  for (const int64_t block : {2, 5, 30}) {
    const auto many = generate_together(student, teacher, prompts, options, interleaved(block));
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(many[i].ids, one[i].ids) << block;
      EXPECT_EQ(many[i].kept, one[i].kept);
      for (const bool k : one[i].kept) (k ? kept : replaced) = true;
    }
  }
  EXPECT_TRUE(kept && replaced);
}

TEST(GenerateTogether, AMixtureOfOneLawIsThatLaw) {
  const Transformer student = tiny_transformer(tiny_config(), 1), teacher = tiny_transformer(tiny_config(), 2);
  const GenerationOptions options{.sampling = {}, .max_new_tokens = 12, .stop_ids = {}, .seed = 5, .streams = {}};
  const auto drawn = generate_together(student, teacher, prompts, options, token_mixture(1));
  const auto same = generate_together(teacher, teacher, prompts, options, token_mixture(0.3));
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(drawn[i].ids, same[i].ids);

  // log-probabilities are those of the mixture at each place
  const auto mixed = generate_together(student, teacher, prompts, options, token_mixture(0.2));
  const at::NoGradGuard no_grad;
  std::vector<int32_t> tokens = prompts[0];
  for (size_t t = 0; t < mixed[0].ids.size(); ++t) {
    const auto law = [&](const Transformer& model) {
      return at::softmax(model.logits(model.hidden(ragged({tokens}))).select(0, -1).to(at::kDouble), -1);
    };
    const auto p = (0.2 * law(teacher) + 0.8 * law(student))[mixed[0].ids[t]].item<double>();
    EXPECT_NEAR(mixed[0].sampler_logps[t], std::log(p), 1e-5);
    tokens.push_back(mixed[0].ids[t]);
  }
  EXPECT_THROW(generate_together(student, teacher, prompts, options, interleaved(0)), Error);
}

}  // namespace
}  // namespace kullback
