// What universal logit distillation claims: beside a little of the teacher's text, sorted laws of a teacher with another
// tokenizer make a better student than the text alone.
#include <ATen/ATen.h>

#include "kullback/distill/merged_text_world.h"
#include "kullback/distill/uld.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// Held-out nats a character of a first-order student on merges of two characters, after training on a few texts that a teacher of
/// characters, the source itself, has written.
double held_out(uint64_t seed, int64_t count, const UldOptions& o) {
  const MergedTextWorld world = merged_text_world(seed);
  const std::vector<std::string> texts = draw_texts(world, count, 24, seed),
                                 others = draw_texts(world, 400, 24, 1000 + seed);
  const std::vector<std::string> characters = merged_vocabulary(world, others, 0),
                                 merged = merged_vocabulary(world, others, 8);
  const TokenBatch theirs = token_batch(characters, texts), ours = token_batch(merged, texts);
  const auto vocabulary = std::ssize(merged);
  const Tensor table = at::zeros({vocabulary + 1, vocabulary}, at::kDouble).requires_grad_(true);
  const Rows teacher = as_rows(world.source.index_select(0, theirs.previous.reshape(-1)));
  Optimizer optimizer({{"table", table}}, {});
  for (int64_t step = 0; step < 400; ++step) {
    const Rows student = as_rows(table.index_select(0, ours.previous.reshape(-1)));
    uld_loss(student, teacher, ours.labels, ours.mask, theirs.mask, o).loss.backward();
    optimizer.step(0.05);
    optimizer.clear_gradients();
  }
  return nats_a_character(table.detach(), token_batch(merged, others));
}

ClaimResult run(bool with_baseline) {
  Table table{.title = "Held-out cross-entropy after 400 steps, nats a character",
              .columns = {text_column("texts"), text_column("seed"), number_column("teacher's text alone"),
                          number_column("with sorted laws")}};
  double gain = INFINITY;
  for (const int64_t texts :
       {4, 12}) {  // with more text there is less to gain, and rows paired by number have their price
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const double alone = held_out(seed, texts, {.distil_weight = 0}),
                   both = held_out(seed, texts, {.distil_weight = with_baseline ? 0 : 1.5});
      table.rows.push_back({std::to_string(texts), std::to_string(seed), alone, both});
      if (texts == 4) gain = std::min(gain, alone - both);
    }
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {at_least("4 texts: text alone less with sorted laws, least of the seeds", gain, 0.1)};
  return result;
}

const RegisteredClaim claim{
    {.name = "uld",
     .method = "uld",
     .statement =
         "A student of merged tokens has less held-out cross-entropy when sorted laws of a teacher of characters "
         "stand beside a little of the teacher's text than with that text alone, at equal steps, for all of three "
         "seeds.",
     .paper_says = "Boizard et al. 2024: small students of other families distilled from Llama-2-7B-chat and "
                   "Mistral-7B-Instruct are better with ULD than when trained on the teacher's text alone.",
     .baseline = "the teacher's text alone (distil_weight 0)",
     .run = run}};

}  // namespace
}  // namespace kullback
