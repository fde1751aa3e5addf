#include "kullback/base/random.h"

#include <cmath>
#include <numbers>

namespace kullback {
namespace {

constexpr uint64_t golden_gamma = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t index) : key_(mix(seed + golden_gamma)) {
  for (const char c : purpose) key_ = mix(key_ ^ (static_cast<unsigned char>(c) + golden_gamma));
  key_ = mix(key_ ^ mix(index + 2 * golden_gamma));
}

uint64_t RandomStream::bits() { return mix(key_ + ++position_ * golden_gamma); }

double RandomStream::uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

double RandomStream::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

uint64_t RandomStream::below(uint64_t bound) {
  const uint64_t limit = -bound % bound;  // values below 2^64 mod bound would favour the small ones
  uint64_t value = bits();
  while (value < limit) value = bits();
  return value % bound;
}

}  // namespace kullback
