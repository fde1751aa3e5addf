#include "kullback/report/shaded.h"

#include <gmock/gmock.h>

namespace kullback {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Shaded, TheLargerTheValueTheRedder) {
  const ShadedText text{.title = "line 3",
                        .value_name = "KL",
                        .unit = "nats",
                        .pieces = {{"none", 0, ""}, {" pale", 0.2, ""}, {" full\x1b", 1, ""}, {" more", 9, ""}},
                        .full = 1};
  EXPECT_EQ(shaded_terminal(text), "line 3 (KL up to 1.0)\nnone pale[ full\xef\xbf\xbd][ more]\n");
  const std::string coloured = shaded_terminal(text, {.colours = true});
  EXPECT_THAT(coloured, HasSubstr("none\x1b[38;5;16;48;5;224m pale\x1b[0m"));
  EXPECT_THAT(coloured, HasSubstr("48;5;196m more"));
  EXPECT_THAT(coloured, Not(HasSubstr("[ more]")));
  EXPECT_EQ(shaded_terminal({.title = "", .value_name = "KL", .unit = "", .pieces = {{"a", 0, ""}}, .full = 0}),
            " (KL up to 0)\na\n");
}

}  // namespace
}  // namespace kullback
