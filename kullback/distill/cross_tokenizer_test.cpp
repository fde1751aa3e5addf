// What holds of the losses between models of different vocabularies: permutations, sizes, masks, alignments.
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/distill/reduced_vocab.h"
#include "kullback/distill/token_alignment.h"
#include "kullback/distill/uld.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;
using O = ReducedVocabOptions;

Tensor random_logits(at::IntArrayRef sizes, uint64_t seed) {
  RandomStream stream(seed, "cross-tokenizer properties");
  return 2 * normals(sizes, stream);
}

TEST(Uld, ANewOrderOfTheVocabularyChangesNothing) {
  for (const int64_t vocabulary : {1, 7, 8, 9, 1000}) {
    const Tensor student = random_logits({5, vocabulary}, 1).requires_grad_(true);
    const Tensor teacher = student.detach().index_select(1, at::randperm(vocabulary));
    const Tensor mask = at::ones({1, 5}, at::kBool);
    const UldLoss l =
        uld_loss(as_rows(student), as_rows(teacher), at::zeros({1, 5}, at::kLong), mask, mask, {.ce_weight = 0});
    l.loss.backward();
    EXPECT_EQ(l.uld.item<double>(), 0);
    EXPECT_EQ(student.grad().abs().max().item<double>(), 0);
  }
}

TEST(Uld, DistancesAreWithinTwoAndTopMNeverAddsToThem) {
  const Tensor student = 20 * random_logits({20, 9}, 2), teacher = random_logits({20, 13}, 3);
  const Tensor whole = sorted_distance(student, teacher);
  EXPECT_GE(whole.min().item<double>(), 0);
  EXPECT_LE(whole.max().item<double>(), 2);
  Tensor before = at::zeros_like(whole);
  for (const int64_t m : {1, 2, 5, 12, 13, 50}) {
    const Tensor cut = sorted_distance(student, teacher, m);
    EXPECT_TRUE((cut <= whole + 1e-12).all().item<bool>()) << m;
    EXPECT_TRUE((cut >= before - 1e-12).all().item<bool>()) << m;
    before = cut;
  }
  EXPECT_TRUE(before.equal(whole));
  EXPECT_TRUE(sorted_distance(student, teacher).allclose(sorted_distance(teacher, student)));
}

TEST(Uld, NothingIsReadOutsideTheMasks) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor student = random_logits({4, 5}, 4), teacher = random_logits({6, 7}, 5);
  student[2].fill_(nan), student[3].fill_(nan), teacher[2].fill_(nan);
  student.requires_grad_(true);
  const Tensor mask = at::tensor({1, 1, 0, 0}, at::kLong).reshape({2, 2}).to(at::kBool),
               teacher_mask = at::tensor({1, 1, 0, 0, 0, 0}, at::kLong).reshape({2, 3}).to(at::kBool);
  const UldLoss l = uld_loss(as_rows(student), as_rows(teacher), at::zeros({2, 2}, at::kLong), mask, teacher_mask, {});
  l.loss.backward();
  EXPECT_TRUE(l.pairs.equal(at::tensor({1, 0}, at::kLong)));  // the student's last row is left out
  EXPECT_TRUE(at::isfinite(student.grad()).all().item<bool>());
  EXPECT_EQ(student.grad().narrow(0, 2, 2).abs().max().item<double>(), 0);
}

TEST(ReducedVocab, NoAlignedRowIsNoLoss) {
  const Tensor student = random_logits({4, 5}, 6).requires_grad_(true);
  const Rows teacher = as_rows(random_logits({4, 6}, 7));
  const Tensor none = at::zeros({2, 2}, at::kBool), ids = at::arange(5),
               map = at::arange(6).remainder(5).reshape({6, 1});
  const AlignedRows match = matched_rows(none, none),
                    reduce = reduced_rows(at::full({2, 2, 3}, -1, at::kLong), at::ones({2, 2}, at::kBool), 2);
  const Tensor loss = shared_columns_kl(as_rows(student), teacher, match, ids, ids, {}) +
                      mapped_columns_kl(as_rows(student), teacher, reduce, map, ids, {});
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(student.grad().abs().max().item<double>(), 0);
}

TEST(ReducedVocab, PooledHiddenStatesGivePooledLogits) {
  const Tensor hidden = random_logits({5, 3}, 8), weight = random_logits({7, 3}, 9);
  const Tensor groups = at::tensor({0, 1, 2, 3, -1, -1, 4, 0, -1}, at::kLong).reshape({3, 3});
  const Rows teacher = as_rows(random_logits({3, 7}, 10));
  const AlignedRows rows{groups, at::arange(3)};
  const Tensor ids = at::tensor({0, 2, 5}, at::kLong);
  Rows head, logits;
  head.hidden = hidden, head.weight = weight;
  logits.hidden = at::matmul(hidden, weight.t());
  for (const O::Pool pool : {O::Pool::sum, O::Pool::mean, O::Pool::last}) {
    const O o{.pool = pool};
    EXPECT_NEAR(shared_columns_kl(head, teacher, rows, ids, ids, o).item<double>(),
                shared_columns_kl(logits, teacher, rows, ids, ids, o).item<double>(), 1e-12);
  }
  head.softcap = 30;
  EXPECT_ANY_THROW(shared_columns_kl(head, teacher, rows, ids, ids, {}));
}

/// Bytes, and after them tokens of merges "a b".
Tokenizer byte_tokenizer(const std::vector<std::string>& merges) {
  BpeSpec spec = byte_level_spec("bytes", merges, {"<|end|>"});
  spec.special.eos = static_cast<int32_t>(spec.tokens.size()) - 1;
  return Tokenizer(spec);
}

TEST(TokenAlignment, OfTwoByteLevelTokenizers) {
  const Tokenizer teacher = byte_tokenizer({"t h", "th e", "a t"}), student = byte_tokenizer({"h e", "a t"});
  const auto ids = [](const Tokenizer& t, const char* text) {
    const std::vector<int32_t> found = t.encode(text);
    return std::vector<int64_t>(found.begin(), found.end());
  };
  const std::vector<int64_t> theirs = ids(teacher, "theat<|end|>"), ours = ids(student, "theat<|end|>");
  ASSERT_EQ(theirs.size(), 3u);  // the at END
  ASSERT_EQ(ours.size(), 4u);    // t he at END
  const TokenMatch match = match_prefixes(teacher, theirs, student, ours);
  EXPECT_EQ(match.teacher, (std::vector<bool>{true, true, true}));
  EXPECT_EQ(match.student, (std::vector<bool>{true, false, true, true}));
  const TokenMap map = split_tokens(teacher, student);
  EXPECT_EQ(map[256 + 1], (std::vector<int64_t>{'t', 256}));  // "the": t, he
  EXPECT_EQ(map[256 + 3], (std::vector<int64_t>{258}));       // the end is the end
  const TokenGroups groups = group_tokens(theirs, map);
  EXPECT_EQ(groups.student_ids, ours);
  EXPECT_EQ(groups.groups, (std::vector<std::vector<int64_t>>{{0, 1}, {2}, {3}}));
  const auto shared = shared_tokens(teacher, student);
  EXPECT_EQ(shared.size(), 256u + 2u);  // bytes, "at", the end
}

}  // namespace
}  // namespace kullback
