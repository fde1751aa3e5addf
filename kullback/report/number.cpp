#include "kullback/report/number.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace kullback {
namespace {

bool all_zeros(const std::string& text) { return text.find_first_of("123456789") == std::string::npos; }

// Six decimals cut to what the digits are worth: 1234.5 with 4 digits is "1234" or "1235", never "1.234e+03".
std::string significant_text(double value, int digits) {
  if (value == 0) return "0";
  const double magnitude = std::abs(value);
  if (magnitude >= 1e9 || magnitude < 1e-4) return fmt::format("{:.{}e}", value, std::max(0, digits - 1));
  const int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  return fmt::format("{:.{}f}", value, std::clamp(digits - 1 - exponent, 0, 12));
}

}  // namespace

std::string number_text(double value, NumberFormat format) {
  if (std::isnan(value)) return "n/a";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text;
  switch (format.kind) {
    case NumberFormat::Kind::significant: return significant_text(value, format.digits);
    case NumberFormat::Kind::fixed: text = fmt::format("{:.{}f}", value, format.digits); break;
    case NumberFormat::Kind::percent: text = fmt::format("{:.{}f}%", 100 * value, format.digits); break;
  }
  if (text.front() == '-' && all_zeros(text)) text.erase(0, 1);  // no "-0.00"
  return text;
}

std::string number_text(const Interval& interval, NumberFormat format) {
  const std::string text = number_text(interval.value, format);
  if (!interval.has_bounds() || std::isnan(interval.value)) return text;
  return fmt::format("{} [{}, {}]", text, number_text(interval.low, format), number_text(interval.high, format));
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1023.95 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace kullback
