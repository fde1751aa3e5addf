#include "kullback/lm/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kullback/base/error.h"

namespace kullback {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void check(const BeamSearchOptions& o) {
  if (o.num_beams < 1) fail("num-beams is {}, which must be at least 1", o.num_beams);
  if (o.max_new_tokens < 1) fail("max-new-tokens is {}, which must be at least 1", o.max_new_tokens);
  if (o.num_return < 1 || o.num_return > o.num_beams)
    fail("num-return is {}, which must be from 1 to num-beams, {}", o.num_return, o.num_beams);
  if (!std::isfinite(o.length_penalty)) fail("length-penalty is {}, which must be finite", o.length_penalty);
}

struct Candidate {
  double logp;
  size_t beam;
  int32_t token;
};

// The best 2K live continuations of all running beams.
std::vector<Candidate> candidates(const std::vector<Beam>& running, const std::vector<std::vector<double>>& logps,
                                  size_t count) {
  std::vector<Candidate> all;
  for (size_t beam = 0; beam < running.size(); ++beam) {
    for (size_t v = 0; v < logps[beam].size(); ++v) {
      if (logps[beam][v] > -infinity)
        all.push_back({running[beam].logp + logps[beam][v], beam, static_cast<int32_t>(v)});
    }
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    if (a.logp != b.logp) return a.logp > b.logp;
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
  };
  const size_t kept = std::min(count, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), before);
  all.resize(kept);
  return all;
}

// Ordered by score, earlier ones first among equals; the worst beyond the pool's size goes.
void add_finished(std::vector<Beam>& finished, Beam beam, size_t size) {
  const auto place =
      std::find_if(finished.begin(), finished.end(), [&](const Beam& other) { return other.score < beam.score; });
  finished.insert(place, std::move(beam));
  if (finished.size() > size) finished.pop_back();
}

}  // namespace

std::vector<Beam> beam_search(const NextLogps& next, const BeamSearchOptions& options) {
  check(options);
  const auto size = static_cast<size_t>(options.num_beams);
  const auto scored = [&](double logp, size_t length) {
    return logp / std::pow(static_cast<double>(length), options.length_penalty);
  };
  std::vector<Beam> running(1), finished;
  for (int64_t step = 1; !running.empty(); ++step) {
    std::vector<std::vector<int32_t>> sequences;
    for (const Beam& beam : running) sequences.push_back(beam.tokens);
    const std::vector<Candidate> best = candidates(running, next(sequences), 2 * size);
    std::vector<Beam> still;
    for (size_t rank = 0; rank < best.size(); ++rank) {
      Beam beam{running[best[rank].beam].tokens, best[rank].logp, 0};
      beam.tokens.push_back(best[rank].token);
      beam.score = scored(beam.logp, beam.tokens.size());
      const bool ends = best[rank].token == options.end_token;
      if (rank < size && (ends || step == options.max_new_tokens)) {
        add_finished(finished, std::move(beam), size);
      } else if (!ends && step < options.max_new_tokens && still.size() < size) {
        still.push_back(std::move(beam));
      }
    }
    running = std::move(still);
    if (finished.size() < size || running.empty()) continue;
    const double largest = running.front().logp;  // they are in order
    if (options.early_stopping || finished.back().score >= scored(largest, running.front().tokens.size())) break;
  }
  if (finished.size() > static_cast<size_t>(options.num_return))
    finished.resize(static_cast<size_t>(options.num_return));
  return finished;
}

}  // namespace kullback
