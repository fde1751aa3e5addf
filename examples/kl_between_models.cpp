// How far apart two models are on a text, token by token: exact sums over the whole vocabulary.
//   build/examples/kl_between_models [MODEL MODEL [TEXT]]
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <kullback/divergence/head.h>

#include "tiny_model.h"

using namespace kullback;

int main(int count, char** words) {
  const bool given = count > 2;
  const Model a = given ? load_model(words[1]) : tiny_model(1), b = given ? load_model(words[2]) : tiny_model(2);
  const std::string text = count > 3 ? words[3] : "The quick brown fox";
  const std::vector<int32_t> ids = a.text().encode(text);

  const at::NoGradGuard no_grad;
  const Rows rows_a = a.transformer.head_rows(a.transformer.hidden(ragged({ids})));  // one row a token
  const Rows rows_b = b.transformer.head_rows(b.transformer.hidden(ragged({ids})));
  HeadRequest wanted;
  for (const char* name : {"kl", "reverse-kl", "js"}) wanted.divergences.push_back(divergence(name).from_policy());
  const HeadStatistics found = head_statistics(rows_a, rows_b, wanted);

  for (size_t t = 0; t < ids.size(); ++t) {
    fmt::print("after {:<10}", fmt::format("\"{}\"", a.text().decode_text({&ids[t], 1})));
    for (const at::Tensor& divergence : found.divergences)
      fmt::print("  {:.4f}", divergence[static_cast<int64_t>(t)].item<double>());
    fmt::print("\n");
  }
  fmt::print("mean KL(A || B) {:.4f} nats a token\n", found.divergences[0].mean().item<double>());
  return found.divergences[0].min().item<double>() >= 0 ? 0 : 1;
}
