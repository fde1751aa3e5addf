#include "kullback/train/places.h"

#include <ATen/ATen.h>
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

void add_by_place(const std::string& figure, const at::Tensor& values, Figures& places) {
  const at::Tensor numbers = values.to(at::kDouble).contiguous();
  for (int64_t t = 0; t < numbers.numel(); ++t)
    add(places, {{fmt::format("{} {}", figure, joined_place(t)), {numbers.const_data_ptr<double>()[t], 1}}});
}

Plot place_plot(const std::vector<Figures>& responses, uint64_t seed,
                const std::vector<std::pair<std::string, std::string>>& shown) {
  const auto means = bootstrap(responses, seed);
  Plot plot;
  plot.x.title = "place in the response";
  plot.y = {.title = "divergence", .unit = "nats"};
  for (const auto& [figure, title] : shown) {
    Series series{.name = title};
    for (int64_t place = 0; place <= most_joined_place; ++place) {
      const auto found = means.find(fmt::format("{} {}", figure, place));
      if (found == means.end()) break;
      if (static_cast<size_t>(place) == plot.x.categories.size()) plot.x.categories.push_back(place_text(place));
      series.x.push_back(static_cast<double>(place)), series.y.push_back(found->second.value);
      series.low.push_back(found->second.low), series.high.push_back(found->second.high);
    }
    if (!series.x.empty()) plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace kullback
