#include "kullback/world/sequences.h"

#include <cmath>

#include <ATen/ATen.h>

namespace kullback {
namespace {

using at::Tensor;

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) result *= base;
  return result;
}

/// Walks the tree of prefixes from its root: for t = 0, 1, ... calls `visit(rows, reach)` with the rows after the prefixes of
/// t tokens [C, n^t, V] and ln of the probability of each such prefix [C, n^t]; gives back that of the responses that are
/// cut [C, n^L].
template <class Visit>
Tensor walk(const SequenceSpace& space, const Tensor& row_logps, const Visit& visit) {
  Tensor reach = at::zeros({row_logps.size(0), 1}, row_logps.options());
  int64_t begin = 0;
  for (int64_t t = 0; t < space.length; ++t) {
    const int64_t count = space.prefixes_of(t);
    const Tensor rows = row_logps.narrow(1, begin, count);
    visit(rows, reach);
    const Tensor going_on = space.ends ? rows.narrow(2, 1, space.branching()) : rows;
    reach = (reach.unsqueeze(2) + going_on).flatten(1);
    begin += count;
  }
  return reach;
}

}  // namespace

int64_t SequenceSpace::prefixes_of(int64_t tokens) const { return power(branching(), tokens); }

int64_t SequenceSpace::prefixes() const {
  int64_t total = 0;
  for (int64_t t = 0; t < length; ++t) total += prefixes_of(t);
  return total;
}

int64_t SequenceSpace::responses() const { return (ends ? prefixes() : 0) + prefixes_of(length); }

std::vector<int64_t> prefix_tokens(const SequenceSpace& space, int64_t prefix) {
  int64_t tokens = 0;
  while (prefix >= space.prefixes_of(tokens)) prefix -= space.prefixes_of(tokens++);
  std::vector<int64_t> result(static_cast<size_t>(tokens));
  for (auto place = result.rbegin(); place != result.rend(); ++place) {
    *place = prefix % space.branching() + (space.ends ? 1 : 0);
    prefix /= space.branching();
  }
  return result;
}

SequenceTable sequence_table(const SequenceSpace& space) {
  const int64_t responses = space.responses(), length = space.length, ending = space.ends ? space.prefixes() : 0;
  SequenceTable table{.tokens = at::zeros({responses, length}, at::kLong),
                      .prefixes = at::zeros({responses, length}, at::kLong),
                      .mask = at::zeros({responses, length}, at::kBool)};
  auto tokens = table.tokens.accessor<int64_t, 2>(), prefixes = table.prefixes.accessor<int64_t, 2>();
  auto mask = table.mask.accessor<bool, 2>();
  for (int64_t r = 0; r < responses; ++r) {
    // A response that is cut is what the prefix of L tokens would be.
    std::vector<int64_t> said = prefix_tokens(space, r < ending ? r : space.prefixes() + r - ending);
    if (r < ending) said.push_back(0);
    int64_t begin = 0, number = 0;  // of the prefixes of t tokens; this response's among them
    for (size_t i = 0; i < said.size(); ++i) {
      const auto t = static_cast<int64_t>(i);
      tokens[r][t] = said[i];
      prefixes[r][t] = begin + number;
      mask[r][t] = true;
      begin += space.prefixes_of(t);
      number = number * space.branching() + said[i] - (space.ends ? 1 : 0);
    }
  }
  return table;
}

std::string response_text(const SequenceSpace& space, const SequenceTable& table, int64_t response) {
  std::string text;
  for (int64_t t = 0; t < space.length; ++t) {
    if (!table.mask[response][t].item<bool>()) break;
    const int64_t token = table.tokens[response][t].item<int64_t>();
    if (!text.empty()) text += ' ';
    text += space.ends && token == 0 ? "." : std::to_string(token);
  }
  return text;
}

Tensor response_logps(const SequenceSpace& space, const Tensor& row_logps) {
  std::vector<Tensor> parts;
  const Tensor cut = walk(space, row_logps, [&](const Tensor& rows, const Tensor& reach) {
    if (space.ends) parts.push_back(reach + rows.select(2, 0));
  });
  parts.push_back(cut);
  return at::cat(parts, 1);
}

Tensor prefix_logps(const SequenceSpace& space, const Tensor& row_logps) {
  std::vector<Tensor> parts;
  walk(space, row_logps, [&](const Tensor&, const Tensor& reach) { parts.push_back(reach); });
  return at::cat(parts, 1);
}

Tensor conditional_logps(const SequenceSpace& space, const Tensor& logps) {
  const int64_t laws = logps.size(0), ending = space.ends ? space.prefixes() : 0;
  Tensor mass =
      logps.narrow(1, ending, space.prefixes_of(space.length));  // of all that begins with a prefix of t tokens
  std::vector<Tensor> rows;                                      // from the longest prefixes to the empty one
  int64_t begin = space.prefixes();
  for (int64_t t = space.length - 1; t >= 0; --t) {
    const int64_t count = space.prefixes_of(t);
    begin -= count;
    Tensor next = mass.reshape({laws, count, space.branching()});
    if (space.ends) next = at::cat({logps.narrow(1, begin, count).unsqueeze(2), next}, 2);
    mass = at::logsumexp(next, 2);
    const Tensor total = mass.unsqueeze(2);
    const double uniform = -std::log(static_cast<double>(space.vocabulary));
    rows.push_back(at::where(at::isneginf(total), at::full({}, uniform, next.options()), next - total));
  }
  std::reverse(rows.begin(), rows.end());
  return at::cat(rows, 1);
}

}  // namespace kullback
