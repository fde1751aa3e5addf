#pragma once

#include <limits>
#include <string>

namespace kullback {

/// A number with its interval (95 % where nothing else is said). NaN bounds: no interval is known. NaN value: nothing.
struct Interval {
  double value = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  bool has_bounds() const { return low == low && high == high; }
};

/// How a number is written for a reader.
struct NumberFormat {
  enum class Kind { significant, fixed, percent } kind = Kind::significant;
  int digits = 4;  ///< significant digits, or digits after the point
};
inline NumberFormat significant(int digits) { return {NumberFormat::Kind::significant, digits}; }
inline NumberFormat fixed(int digits) { return {NumberFormat::Kind::fixed, digits}; }
/// 0.725 is written 72.5% with one digit.
inline NumberFormat percent(int digits) { return {NumberFormat::Kind::percent, digits}; }

/// NaN is written "n/a" and infinities "inf" and "-inf", in every format.
std::string number_text(double value, NumberFormat format = {});
/// "0.72 [0.65, 0.79]", or the number alone where there are no bounds.
std::string number_text(const Interval& interval, NumberFormat format = {});
/// "850 ms", "12.3 s", "4 min 10 s", "2 h 05 min", "3 d 4 h"; negative and NaN: "?".
std::string duration_text(double seconds);
/// "512 B", "1.5 KiB", "3.2 GiB".
std::string bytes_text(double bytes);

}  // namespace kullback
