#include "kullback/world/reward.h"

#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"
#include "kullback/base/random.h"
#include "kullback/base/suggest.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

const std::vector<std::string> kinds{"random", "length", "count", "ends", "towards"};

/// One term of the sum: weight * kind:argument.
struct Term {
  double weight = 1;
  std::string kind, argument;
};

std::vector<Term> parse(const std::string& text, const std::string& option) {
  std::vector<Term> terms;
  const std::string compact = without_spaces(text);
  for (size_t at = 0; at < compact.size();) {
    Term term;
    const bool minus = compact[at] == '-';
    if (minus || compact[at] == '+') {
      ++at;
    } else if (at > 0) {
      fail("option {}: \"{}\": a + or - is missing at \"{}\"", option, text, compact.substr(at));
    }
    const size_t end = std::min(compact.find_first_of("+-", at), compact.size());
    std::string body = compact.substr(at, end - at);
    at = end;
    if (const size_t star = body.find('*'); star != std::string::npos) {
      const auto weight = parsed_number(body.substr(0, star));
      if (!weight) fail("option {}: \"{}\": \"{}\" is no number", option, text, body.substr(0, star));
      term.weight = *weight;
      body = body.substr(star + 1);
    }
    if (minus) term.weight = -term.weight;
    const size_t colon = std::min(body.find(':'), body.size());
    term.kind = body.substr(0, colon);
    term.argument = colon < body.size() ? body.substr(colon + 1) : "";
    if (std::find(kinds.begin(), kinds.end(), term.kind) == kinds.end()) {
      fail("option {}: unknown reward \"{}\"{}; rewards are {}", option, term.kind, suggestion(term.kind, kinds),
           listing(kinds));
    }
    terms.push_back(std::move(term));
  }
  if (terms.empty()) fail("option {}: no reward is given; {}", option, reward_grammar);
  return terms;
}

/// Digits of an argument as tokens of the space; the end token cannot be asked for.
std::vector<int64_t> tokens_of(const Term& term, const SequenceSpace& space, const std::string& option) {
  std::vector<int64_t> tokens;
  for (const char c : term.argument) {
    const int64_t token = c - '0', first = space.ends ? 1 : 0;
    if (token < first || token >= space.vocabulary) {
      fail("option {}: {}:{} needs tokens from {} to {}", option, term.kind, term.argument, first,
           space.vocabulary - 1);
    }
    tokens.push_back(token);
  }
  if (tokens.empty()) fail("option {}: {} needs a token, as in {}:1", option, term.kind, term.kind);
  return tokens;
}

int64_t table_number(const Term& term, const std::string& option) {
  if (term.argument.empty()) return 0;
  const auto number = parsed_number<int64_t>(term.argument);
  if (!number || *number < 0) fail("option {}: {}:{} needs a whole number from 0 on", option, term.kind, term.argument);
  return *number;
}

/// [R,L]: the tokens of each response without the end token, -1 elsewhere.
Tensor spoken(const SequenceSpace& space, const SequenceTable& table) {
  const Tensor counts = space.ends ? table.mask & (table.tokens != 0) : table.mask;
  return at::where(counts, table.tokens, at::full({}, -1, at::kLong));
}

/// 1 where a response's last spoken tokens are `pattern`. [R]
Tensor ends_with(const Tensor& said, const std::vector<int64_t>& pattern) {
  const int64_t responses = said.size(0), length = said.size(1), wanted = static_cast<int64_t>(pattern.size());
  const Tensor result = at::zeros({responses}, at::kDouble);
  const auto tokens = said.accessor<int64_t, 2>();
  auto hits = result.accessor<double, 1>();
  for (int64_t r = 0; r < responses; ++r) {
    int64_t end = 0;
    while (end < length && tokens[r][end] >= 0) ++end;
    bool same = wanted <= end;
    for (int64_t i = 0; same && i < wanted; ++i) same = tokens[r][end - wanted + i] == pattern[static_cast<size_t>(i)];
    hits[r] = same ? 1 : 0;
  }
  return result;
}

Tensor random_table(at::IntArrayRef shape, uint64_t seed, int64_t table) {
  RandomStream stream(seed, "world/reward", static_cast<uint64_t>(table));
  return normals(shape, stream);
}

}  // namespace

const char* const reward_grammar =
    "a sum such as \"random + 0.5*length - 2*ends:11\" of random, length, count:TOKEN, ends:TOKENS and towards";

Tensor target_law(const SequenceSpace& space, int64_t prompts, uint64_t seed, int64_t table) {
  RandomStream stream(seed, "world/target", static_cast<uint64_t>(table));
  return response_logps(space, random_rows(space, prompts, /*deviation=*/1, stream));
}

Tensor rewards(const std::string& text, const SequenceSpace& space, const SequenceTable& table,
               const Tensor& reference_logps, uint64_t seed, const std::string& option) {
  const Tensor said = spoken(space, table);  // [R,L]
  Tensor total = at::zeros_like(reference_logps);
  for (const Term& term : parse(text, option)) {
    Tensor part;
    if (term.kind == "random") {
      part = random_table(reference_logps.sizes(), seed, table_number(term, option));
    } else if (term.kind == "towards") {
      part = target_law(space, reference_logps.size(0), seed, table_number(term, option)) - reference_logps;
    } else if (term.kind == "length") {
      if (!term.argument.empty()) fail("option {}: length takes no argument", option);
      part = (said >= 0).sum(1).to(at::kDouble);
    } else if (term.kind == "count") {
      const std::vector<int64_t> tokens = tokens_of(term, space, option);
      if (tokens.size() > 1) fail("option {}: count takes one token", option);
      part = (said == tokens[0]).sum(1).to(at::kDouble);
    } else {
      part = ends_with(said, tokens_of(term, space, option));
    }
    total = total + term.weight * part;
  }
  return total;
}

}  // namespace kullback
