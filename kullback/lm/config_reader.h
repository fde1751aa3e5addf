#pragma once

#include <string>
#include <type_traits>

#include "kullback/base/error.h"
#include "kullback/base/json.h"

namespace kullback {

/// Typed reading of a JSON object with errors that name the file and the key.
struct ConfigReader {
  const Json& json;
  const std::string& source;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }

  template <class T>
  T value(const char* key) const {
    if (!has(key)) fail("{}: no key '{}'", source, key);
    const Json& found = json[key];
    const bool fits = std::is_same_v<T, std::string> ? found.is_string()
                      : std::is_same_v<T, bool>      ? found.is_boolean()
                      : std::is_integral_v<T>        ? found.is_number_integer()
                                                     : found.is_number();
    if (!fits) fail("{}: the value of '{}' is {}, which is not {}", source, key, found.dump(), kind<T>());
    return found.get<T>();
  }

  template <class T>
  T value(const char* key, T fallback) const {
    return has(key) ? value<T>(key) : fallback;
  }

 private:
  template <class T>
  static const char* kind() {
    if (std::is_same_v<T, std::string>) return "a text";
    if (std::is_same_v<T, bool>) return "true or false";
    return std::is_integral_v<T> ? "a whole number" : "a number";
  }
};

}  // namespace kullback
