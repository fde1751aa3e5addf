#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <fmt/ranges.h>

#include "kullback/base/error.h"

namespace kullback {

/// Throws an Error naming the tensor when it has another shape than the configuration asks for.
inline void check_shape(const std::string& source, const std::string& name, std::span<const int64_t> found,
                        std::span<const int64_t> expected) {
  if (std::equal(found.begin(), found.end(), expected.begin(), expected.end())) return;
  fail("{}: tensor '{}' has shape [{}] where the configuration asks for [{}]", source, name, fmt::join(found, ", "),
       fmt::join(expected, ", "));
}

inline void check_shape(const std::string& source, const std::string& name, std::span<const int64_t> found,
                        std::initializer_list<int64_t> expected) {
  check_shape(source, name, found, std::span<const int64_t>(expected.begin(), expected.size()));
}

}  // namespace kullback
