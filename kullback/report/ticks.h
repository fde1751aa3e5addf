#pragma once

#include <string>
#include <vector>

namespace kullback {

enum class Scale { linear, logarithmic };

struct Range {
  double low = 0, high = 1;
};

struct Tick {
  double value = 0;
  std::string label;
};

/// The range of an axis that shows all of [low, high]: a constant is given room, `padding` is the share of the length
/// added at both ends (in log space on a logarithmic scale, which wants low > 0).
Range axis_range(double low, double high, Scale scale, double padding);

/// Round values inside the range, about `wanted` of them, with labels that tell them apart. Linear steps are 1, 2,
/// 2.5 or 5 times a power of ten; logarithmic ones are decades, their 1-2-5 divisions, or linear steps where the
/// range is narrow. `whole`: the values are counts, so that linear steps are whole numbers.
std::vector<Tick> axis_ticks(const Range& range, Scale scale, int wanted, bool whole = false);

}  // namespace kullback
