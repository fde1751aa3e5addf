#include "kullback/text/token_class.h"

#include <gmock/gmock.h>

#include "kullback/text/byte_level_spec.h"

namespace kullback {
namespace {

using ::testing::ElementsAre;
using C = TokenClass;

/// A tokenizer with a few whole words among its bytes.
Tokenizer tokenizer() { return Tokenizer(byte_level_spec("classes", {"t o", "Ġ to", "1 2", "Ċ Ċ"}, {"<|end|>"})); }

std::vector<C> classes(const std::string& text) {
  const Tokenizer t = tokenizer();
  return classified(t, t.encode(text));
}

TEST(TokenClass, FollowsTheFirstVisibleCharacterAndWhatStandsBefore) {
  EXPECT_THAT(classes("to to"), ElementsAre(C::word_start, C::word_start));
  EXPECT_THAT(classes("tota"), ElementsAre(C::word_start, C::word_inside, C::word_inside));
  EXPECT_THAT(classes("a12."), ElementsAre(C::word_start, C::number, C::punctuation));
  EXPECT_THAT(classes("12a"), ElementsAre(C::number, C::word_inside));
  EXPECT_THAT(classes("(a+\n\n"), ElementsAre(C::punctuation, C::word_start, C::punctuation, C::whitespace));
  EXPECT_THAT(classes("é b"), ElementsAre(C::bytes, C::bytes, C::whitespace, C::word_start));
  EXPECT_THAT(classes("a<|end|>b"), ElementsAre(C::word_start, C::special, C::word_start));
  EXPECT_TRUE(classes("").empty());
  for (const C one : token_classes()) EXPECT_FALSE(token_class_name(one).empty());
}

}  // namespace
}  // namespace kullback
