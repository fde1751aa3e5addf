#include "kullback/distill/sequence_level.h"

#include <algorithm>

#include "kullback/base/error.h"

namespace kullback {
namespace {

bool likelier(const Hypothesis& a, const Hypothesis& b) {
  return a.logp > b.logp || (a.logp == b.logp && std::ranges::lexicographical_compare(a.tokens, b.tokens));
}

}  // namespace

std::vector<Hypothesis> beam_search(const NextLogps& next_logps, int64_t beams, int64_t max_length, int64_t end) {
  if (beams < 1) fail("option --beams: {} is below 1", beams);
  std::vector<Hypothesis> live{{}}, finished;
  for (int64_t length = 0; length < max_length && !live.empty(); ++length) {
    std::vector<Hypothesis> extended;
    for (const Hypothesis& h : live) {
      const std::vector<double> logps = next_logps(h.tokens);
      for (size_t token = 0; token < logps.size(); ++token) {
        Hypothesis longer = h;
        longer.tokens.push_back(static_cast<int64_t>(token));
        longer.logp += logps[token];
        extended.push_back(std::move(longer));
      }
    }
    std::ranges::sort(extended, likelier);
    extended.resize(std::min(extended.size(), static_cast<size_t>(beams)));
    live.clear();
    for (Hypothesis& h : extended) (h.tokens.back() == end ? finished : live).push_back(std::move(h));
  }
  finished.insert(finished.end(), std::make_move_iterator(live.begin()), std::make_move_iterator(live.end()));
  std::ranges::sort(finished, likelier);
  finished.resize(std::min(finished.size(), static_cast<size_t>(beams)));
  return finished;
}

}  // namespace kullback
