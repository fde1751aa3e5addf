#include "kullback/world/claim.h"

#include <algorithm>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"

namespace kullback {

bool Assertion::holds() const { return must == Must::be_at_most ? value <= limit : value >= limit; }

Assertion at_most(std::string what, double value, double limit) {
  return {std::move(what), value, Assertion::Must::be_at_most, limit};
}
Assertion at_least(std::string what, double value, double limit) {
  return {std::move(what), value, Assertion::Must::be_at_least, limit};
}

bool ClaimResult::passed() const {
  return !assertions.empty() &&
         std::all_of(assertions.begin(), assertions.end(), [](const Assertion& a) { return a.holds(); });
}

namespace {

std::vector<Claim>& registered() {
  static std::vector<Claim> all;
  return all;
}

}  // namespace

RegisteredClaim::RegisteredClaim(Claim claim) {
  std::vector<Claim>& all = registered();
  const auto before = [](const Claim& a, const Claim& b) {
    return std::pair(a.method, a.name) < std::pair(b.method, b.name);
  };
  all.insert(std::upper_bound(all.begin(), all.end(), claim, before), std::move(claim));
}

const std::vector<Claim>& claims() { return registered(); }

std::vector<Claim> find_claims(std::string_view name) {
  std::vector<Claim> found;
  std::vector<std::string> known;
  for (const Claim& claim : claims()) {
    if (claim.name == name || claim.method == name) found.push_back(claim);
    known.push_back(claim.name);
  }
  if (found.empty()) fail("no claim \"{}\"{}; `kullback claim --list` shows all", name, suggestion(name, known));
  return found;
}

}  // namespace kullback
