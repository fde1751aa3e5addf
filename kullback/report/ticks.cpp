#include "kullback/report/ticks.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace kullback {
namespace {

constexpr double huge = 1e300;  // beyond, differences overflow

double round_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (rough <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string superscript(int exponent) {
  static constexpr const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "⁻" : "";
  for (const char c : std::to_string(std::abs(exponent))) text += digits[c - '0'];
  return text;
}

// A typographic minus, and no trailing zeros where the digits were only asked for to tell steps apart.
std::string decimal_text(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", std::abs(value), decimals);
  const bool zero = text.find_first_of("123456789") == std::string::npos;
  return value < 0 && !zero ? "−" + text : text;
}

int decimals_for(double step) {
  if (step <= 0) return 0;
  int decimals = 0;
  double scaled = step;
  while (decimals < 15 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled) {
    scaled *= 10;
    ++decimals;
  }
  return decimals;
}

// What all labels of an axis have in common: a factor and how it is written.
struct Notation {
  double factor = 1;
  std::string suffix;
};

Notation notation_for(double largest, double step) {
  if (largest >= 1e12 || (largest > 0 && largest < 1e-3)) {
    const int exponent = static_cast<int>(std::floor(std::log10(largest) + 1e-12));
    return {std::pow(10.0, exponent), "×10" + superscript(exponent)};
  }
  // 10 000 and 10 500 stay readable as 10k and 10.5k; beyond two decimals the plain number is clearer.
  const auto fits = [&](double factor) { return largest >= factor && decimals_for(step / factor) <= 2; };
  if (fits(1e9)) return {1e9, "G"};
  if (fits(1e6)) return {1e6, "M"};
  if (largest >= 1e4 && fits(1e3)) return {1e3, "k"};
  return {};
}

std::vector<Tick> linear_ticks(const Range& range, int wanted, bool whole) {
  const double length = range.high - range.low, rough = round_step(length / std::max(1, wanted));
  const double step = !whole ? rough : rough < 1 ? 1 : rough == 2.5 ? 5 : rough;
  const double first = std::ceil(range.low / step - 1e-6);
  const double last = std::floor(range.high / step + 1e-6);
  const Notation notation = notation_for(std::max(std::abs(first), std::abs(last)) * step, step);
  const int decimals = decimals_for(step / notation.factor);
  std::vector<Tick> ticks;
  for (double n = first; n <= last && ticks.size() < 100; ++n) {
    const double value = n * step;
    ticks.push_back({value, n == 0 ? "0" : decimal_text(value / notation.factor, decimals) + notation.suffix});
  }
  return ticks;
}

std::string power_label(int factor, int exponent) {
  if (exponent >= -3 && exponent <= 3) return decimal_text(factor * std::pow(10.0, exponent), std::max(0, -exponent));
  return (factor == 1 ? "10" : fmt::format("{}×10", factor)) + superscript(exponent);
}

std::vector<Tick> logarithmic_ticks(const Range& range, int wanted) {
  const double low = std::log10(range.low), high = std::log10(range.high);
  const int first = static_cast<int>(std::ceil(low - 1e-9)), last = static_cast<int>(std::floor(high + 1e-9));
  std::vector<Tick> ticks;
  if (last - first >= 2) {
    const int stride = std::max(1, (last - first + wanted) / std::max(1, wanted));
    for (int exponent = first; exponent <= last; ++exponent) {
      if (exponent % stride == 0) ticks.push_back({std::pow(10.0, exponent), power_label(1, exponent)});
    }
    return ticks;
  }
  for (int exponent = first - 1; exponent <= last; ++exponent) {
    for (const int factor : {1, 2, 5}) {
      const double value = factor * std::pow(10.0, exponent);
      if (std::log10(value) >= low - 1e-9 && std::log10(value) <= high + 1e-9)
        ticks.push_back({value, power_label(factor, exponent)});
    }
  }
  return ticks.size() >= 3 ? ticks : linear_ticks(range, wanted, false);
}

Range with_room(double low, double high) {
  const double magnitude = std::max(std::abs(low), std::abs(high));
  if (high - low > 1e-12 * magnitude && high - low > 1e-290) return {low, high};
  const double room = magnitude > 1e-280 ? 0.1 * magnitude : 1;
  return {low - room, high + room};
}

}  // namespace

Range axis_range(double low, double high, Scale scale, double padding) {
  low = std::clamp(low, -huge, huge);
  high = std::clamp(high, -huge, huge);
  if (low > high) std::swap(low, high);
  if (scale == Scale::logarithmic) {
    low = std::max(low, 1e-300);
    high = std::max(high, low);
    double log_low = std::log10(low), log_high = std::log10(high);
    if (log_high - log_low < 1e-9) {
      log_low -= 0.5;
      log_high += 0.5;
    }
    const double room = padding * (log_high - log_low);
    return {std::pow(10, std::max(-300.0, log_low - room)), std::pow(10, std::min(300.0, log_high + room))};
  }
  const Range range = with_room(low, high);
  const double room = padding * (range.high - range.low);
  return {range.low - room, range.high + room};
}

std::vector<Tick> axis_ticks(const Range& range, Scale scale, int wanted, bool whole) {
  return scale == Scale::logarithmic ? logarithmic_ticks(range, wanted) : linear_ticks(range, wanted, whole);
}

}  // namespace kullback
