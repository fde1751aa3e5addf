#include "kullback/report/plot.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "kullback/report/decimate.h"
#include "kullback/report/escape.h"
#include "kullback/report/plot_detail.h"

namespace kullback {

const std::vector<PlotColour>& plot_palette() {
  // After Okabe and Ito, darkened on white and lightened on dark ground until each has a contrast of at least 3.
  static const std::vector<PlotColour> palette{
      {"#0068b4", "#4ea8e8"}, {"#d1480b", "#ff8d55"}, {"#00896a", "#33c9a2"}, {"#b0559a", "#e49bd0"},
      {"#a87800", "#ecb53a"}, {"#3f8fc4", "#9ad2f5"}, {"#6d4fc4", "#b39df5"}, {"#5f6b76", "#a9b4bf"},
  };
  return palette;
}

namespace detail {
namespace {

// As short as five digits allow: a hover is not a column of numbers.
std::string short_text(const Interval& interval) {
  if (!std::isfinite(interval.value)) return number_text(interval.value);
  const std::string text = fmt::format("{:.5g}", interval.value);
  return interval.has_bounds() ? fmt::format("{} [{:.5g}, {:.5g}]", text, interval.low, interval.high) : text;
}

}  // namespace

std::string axis_text(const Axis& axis) {
  if (axis.unit.empty()) return axis.title;
  return axis.title.empty() ? axis.unit : fmt::format("{} ({})", axis.title, axis.unit);
}

void check_plot(const Plot& plot) {
  for (const Series& series : plot.series) {
    const std::size_t size = series.x.size();
    const auto wrong = [&](const auto& values) { return !values.empty() && values.size() != size; };
    if (series.y.size() != size || wrong(series.low) || wrong(series.high) || wrong(series.x_low) ||
        wrong(series.x_high) || wrong(series.labels) || series.low.size() != series.high.size() ||
        series.x_low.size() != series.x_high.size()) {
      throw std::invalid_argument(
          fmt::format("plot \"{}\": series \"{}\" has columns of different lengths", plot.title, series.name));
    }
  }
}

bool shows(double value, Scale scale) { return std::isfinite(value) && (scale == Scale::linear || value > 0); }

std::string point_text(const Plot& plot, const Series& series, std::size_t i) {
  const auto name_of = [](const Axis& axis, double value) {
    const auto n = static_cast<std::size_t>(std::max(0.0, std::round(value)));
    return n < axis.categories.size() ? axis.categories[n] : short_text({value});
  };
  const auto with_unit = [](const std::string& text, const Axis& axis) {
    return axis.unit.empty() ? text : text + " " + axis.unit;
  };
  const auto bounds = [&](const std::vector<double>& low, const std::vector<double>& high) {
    return low.empty() ? Interval{} : Interval{0, low[i], high[i]};
  };
  Interval x = series.x_low.empty() ? Interval{series.x[i]} : Interval{series.x[i], series.x_low[i], series.x_high[i]};
  Interval y{series.y[i]};
  const bool sideways = series.mark == Mark::horizontal_bars;
  const Interval range = bounds(series.low, series.high);
  (sideways ? x : y).low = range.low;
  (sideways ? x : y).high = range.high;
  if (sideways) std::swap(x, y);
  const Axis& along = sideways ? plot.y : plot.x;
  const Axis& value = sideways ? plot.x : plot.y;

  std::string text = series.name;
  if (!series.labels.empty() && !series.labels[i].empty()) text += (text.empty() ? "" : ", ") + series.labels[i];
  if (!text.empty()) text += "\n";
  const std::string place = along.categories.empty() ? short_text(x) : name_of(along, x.value);
  text += fmt::format("{}{}\n", along.title.empty() ? "" : along.title + ": ", with_unit(place, along));
  text += fmt::format("{}{}", value.title.empty() ? "" : value.title + ": ", with_unit(short_text(y), value));
  return text;
}

}  // namespace detail

namespace {

const char* mark_name(Mark mark) {
  switch (mark) {
    case Mark::line: return "line";
    case Mark::points: return "points";
    case Mark::step: return "step";
    case Mark::bars: return "bars";
    case Mark::horizontal_bars: return "horizontal-bars";
  }
  return "";
}

Json axis_data(const Axis& axis) {
  Json json{{"title", clean_utf8(axis.title)}, {"unit", clean_utf8(axis.unit)}};
  if (axis.scale == Scale::logarithmic) json["scale"] = "log";
  if (!axis.categories.empty()) {
    for (const std::string& name : axis.categories) json["categories"].push_back(clean_utf8(name));
  }
  return json;
}

// Seven significant digits are more than a plot can show, and halve the size of a page.
double rounded(double value) {
  if (!std::isfinite(value)) return value;
  const std::string text = fmt::format("{:.7g}", value);
  double result = value;  // stays where the text is out of range, as denormals are
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

Json numbers(const std::vector<double>& values, const std::vector<std::size_t>& kept) {
  Json json = Json::array();
  for (const std::size_t i : kept) json.push_back(std::isfinite(values[i]) ? Json(rounded(values[i])) : Json(nullptr));
  return json;
}

std::vector<std::size_t> thinned(const Series& series, std::size_t limit) {
  if (series.x.size() <= limit) return decimate_line(series.y, {}, {}, series.y.size());
  if (series.mark != Mark::points) {
    const auto& values = series.mark == Mark::horizontal_bars ? series.x : series.y;
    return decimate_line(values, series.low, series.high, std::max<std::size_t>(1, limit / 5));
  }
  // To unit squares, so that the cells of the grid mean the same along both axes.
  const auto to_unit = [](std::vector<double> values) {
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (const double v : values) {
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    }
    for (double& v : values) v = high > low ? (v - low) / (high - low) * 1000 : (std::isfinite(v) ? 0 : v);
    return values;
  };
  return decimate_points(to_unit(series.x), to_unit(series.y), limit);
}

}  // namespace

Json plot_data(const Plot& plot, std::size_t limit) {
  detail::check_plot(plot);
  Json json{
      {"title", clean_utf8(plot.title)}, {"x", axis_data(plot.x)}, {"y", axis_data(plot.y)}, {"series", Json::array()}};
  for (const Series& series : plot.series) {
    const auto kept = thinned(series, limit);
    Json one{{"name", clean_utf8(series.name)}, {"mark", mark_name(series.mark)}};
    if (kept.size() < series.x.size()) one["thinned_from"] = series.x.size();
    one["x"] = numbers(series.x, kept);
    one["y"] = numbers(series.y, kept);
    if (!series.low.empty()) one["low"] = numbers(series.low, kept), one["high"] = numbers(series.high, kept);
    if (!series.x_low.empty()) one["x_low"] = numbers(series.x_low, kept), one["x_high"] = numbers(series.x_high, kept);
    if (!series.labels.empty()) {
      one["labels"] = Json::array();
      for (const std::size_t i : kept) one["labels"].push_back(clean_utf8(series.labels[i]));
    }
    json["series"].push_back(std::move(one));
  }
  return json;
}

}  // namespace kullback
