#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kullback {

/// A reproducible stream of random numbers, named by seed, purpose and index: what one stream yields never depends on how
/// much another was used. Its whole state is the pair (key, position), so saving and resuming it is exact. The generator
/// is SplitMix64 (Steele, Lea and Flood 2014) over a key mixed from the names.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed, std::string_view purpose = "", uint64_t index = 0);

  uint64_t bits();   ///< 64 uniform bits
  double uniform();  ///< in [0, 1), 53 bits
  double normal();   ///< standard normal (Box and Muller; one of the pair, so that the state stays a position)
  uint64_t below(uint64_t bound);  ///< uniform in 0 .. bound-1 without bias; bound > 0

  /// Fisher and Yates.
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

 private:
  uint64_t key_;
  uint64_t position_ = 0;
};

}  // namespace kullback
