#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/report/plot.h"
#include "kullback/train/figures.h"

namespace kullback {

/// Places in a response, joined by doubling so that late ones hold enough tokens: 1, 2, 3-4, 5-8, ...
inline constexpr int64_t most_joined_place = 12;  ///< the last one holds all that follow

/// 0, 1, 2, 3, ... for places 1, 2, 3-4, 5-8, ...; `place` counts from 0.
int64_t joined_place(int64_t place);
/// "1", "2", "3-4", ...
std::string place_text(int64_t joined);

/// Adds a figure of each token of a response, [n], under its joined place: "kl 0", "kl 1", ...
void add_by_place(const std::string& figure, const at::Tensor& values, Figures& places);

/// Means of such figures by place, with 95 % intervals over responses. `shown`: figures and how they are called.
Plot place_plot(const std::vector<Figures>& responses, uint64_t seed,
                const std::vector<std::pair<std::string, std::string>>& shown);

}  // namespace kullback
