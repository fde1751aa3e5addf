#include "kullback/train/places.h"

#include <fmt/format.h>

namespace kullback {

int64_t joined_place(int64_t place) {
  int64_t joined = 0;
  for (int64_t last = 1; place >= last && joined < most_joined_place; last *= 2) ++joined;
  return joined;
}

std::string place_text(int64_t joined) {
  if (joined < 2) return std::to_string(joined + 1);
  const int64_t last = int64_t{1} << joined, first = last / 2 + 1;
  return joined == most_joined_place ? fmt::format("{}+", first) : fmt::format("{}-{}", first, last);
}

}  // namespace kullback
