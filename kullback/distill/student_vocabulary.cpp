#include "kullback/distill/student_vocabulary.h"

#include <ATen/ATen.h>

#include "kullback/base/random.h"
#include "kullback/distill/token_alignment.h"

namespace kullback {

void take_vocabulary(Model& student, const Tokenizer& tokenizer, uint64_t seed) {
  Transformer& made = student.transformer;
  const TokenMap map = split_tokens(student.text(), tokenizer);
  made.config.vocabulary_size = tokenizer.vocabulary_size();
  const auto table = [&](const at::Tensor& former, const char* name) {
    RandomStream stream(seed, name);
    const at::Tensor random = at::empty({made.config.vocabulary_size, former.size(1)}, at::kFloat);
    float* number = random.mutable_data_ptr<float>();
    for (int64_t i = 0; i < random.numel(); ++i) number[i] = static_cast<float>(0.02 * stream.normal());
    return split_embedding(map, former, random.to(former.scalar_type()));
  };
  made.embedding = table(made.embedding, "student/embedding");
  made.head = made.config.tied_head ? made.embedding : table(made.head, "student/head");
  const auto id = [](std::optional<int32_t> token) { return token ? int64_t{*token} : int64_t{-1}; };
  made.config.bos = id(tokenizer.bos()), made.config.eos = id(tokenizer.eos()), made.config.pad = -1;
  student.generation.stop_ids.clear();
  if (tokenizer.eos()) student.generation.stop_ids.push_back(*tokenizer.eos());
  student.tokenizer = tokenizer;
  set_chat_template(student, student.jinja);  // which may spell the new tokenizer's special tokens
}

}  // namespace kullback
