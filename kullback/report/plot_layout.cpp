#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "kullback/report/escape.h"
#include "kullback/report/plot.h"
#include "kullback/report/plot_detail.h"

// Axes, titles and legend: where everything goes.
namespace kullback {
namespace detail {

double Canvas::text_width(const std::string& text, double size) {
  return 0.56 * size * static_cast<double>(display_width(text));
}

void Canvas::text(double x, double y, const std::string& text, const TextStyle& style) {
  std::string extra;
  if (style.bold) extra += " font-weight=\"600\"";
  if (style.halo) extra += " stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\" stroke-linejoin=\"round\"";
  if (style.turned != 0) extra += fmt::format(" transform=\"rotate({} {:.1f} {:.1f})\"", style.turned, x, y);
  if (style.size != font) extra += fmt::format(" font-size=\"{}\"", style.size);
  markup_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}{}\" fill=\"{}\"{}>{}</text>", x,
                         y, style.anchor, style.dim ? "dim" : "ink", style.halo ? " halo" : "",
                         style.dim ? "#5a6570" : "#1c2329", extra, escape_html(text));
}

void Canvas::line(double x1, double y1, double x2, double y2, const char* kind) {
  const std::string_view name = kind;
  const char* look = name == "grid"   ? "stroke=\"#e3e7eb\""
                     : name == "axis" ? "stroke=\"#8a949e\""
                                      : "stroke=\"#5a6570\" stroke-dasharray=\"2 3\" stroke-width=\"1.3\"";
  markup_ += fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" class=\"{}\" {}/>", x1, y1, x2, y2, kind, look);
}

}  // namespace detail

namespace {

using detail::Canvas;
using detail::Frame;
using detail::shows;

struct Extent {
  double low = HUGE_VAL, high = -HUGE_VAL;
  void add(double value, Scale scale) {
    if (!shows(value, scale)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void add(const std::vector<double>& values, Scale scale) {
    for (const double value : values) add(value, scale);
  }
  bool empty() const { return low > high; }
};

bool has_mark(const Plot& plot, Mark mark) {
  return std::any_of(plot.series.begin(), plot.series.end(), [&](const Series& s) { return s.mark == mark; });
}

Extent extent_along(const Plot& plot, bool x) {
  const Axis& axis = x ? plot.x : plot.y;
  Extent extent;
  for (const Series& series : plot.series) {
    extent.add(x ? series.x : series.y, axis.scale);
    const bool is_value = (series.mark == Mark::horizontal_bars) == x;
    if (is_value) {
      extent.add(series.low, axis.scale);
      extent.add(series.high, axis.scale);
    } else if (x) {
      extent.add(series.x_low, axis.scale);
      extent.add(series.x_high, axis.scale);
    }
    const Mark grows = x ? Mark::horizontal_bars : Mark::bars;
    if (series.mark == grows && axis.scale == Scale::linear && !extent.empty()) extent.add(0, axis.scale);
  }
  if (extent.empty()) return extent;
  for (const ReferenceLine& line : plot.references) {
    if ((line.direction == ReferenceLine::Direction::vertical) == x) extent.add(line.value, axis.scale);
  }
  return extent;
}

Range range_along(const Plot& plot, bool x) {
  const Axis& axis = x ? plot.x : plot.y;
  if (!axis.categories.empty()) return {-0.5, static_cast<double>(axis.categories.size()) - 0.5};
  Extent extent = extent_along(plot, x);
  if (axis.minimum && shows(*axis.minimum, axis.scale)) extent.low = std::min(*axis.minimum, extent.low);
  if (axis.maximum && shows(*axis.maximum, axis.scale)) extent.high = std::max(*axis.maximum, extent.high);
  if (extent.empty()) return axis.scale == Scale::linear ? Range{0, 1} : Range{0.1, 10};
  const bool cloud = has_mark(plot, Mark::points);
  const bool bars_stand = has_mark(plot, x ? Mark::bars : Mark::horizontal_bars);
  Range range = axis_range(extent.low, extent.high, axis.scale, x && !cloud && !bars_stand ? 0.01 : 0.06);
  if (axis.scale == Scale::linear) {  // room must not suggest values of the other sign
    if (extent.low >= 0 && range.low < 0 && extent.high > 0) range.low = 0;
    if (extent.high <= 0 && range.high > 0 && extent.low < 0) range.high = 0;
  }
  if (axis.minimum && shows(*axis.minimum, axis.scale) && extent.low >= *axis.minimum) range.low = *axis.minimum;
  if (axis.maximum && shows(*axis.maximum, axis.scale) && extent.high <= *axis.maximum && *axis.maximum > range.low)
    range.high = *axis.maximum;
  return range;
}

std::vector<std::string> wrapped(const std::string& text, double width, double size, std::size_t most_lines) {
  std::vector<std::string> lines;
  std::istringstream words(clean_utf8(text));
  for (std::string word; words >> word;) {
    if (!lines.empty() && Canvas::text_width(lines.back() + " " + word, size) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  if (lines.size() > most_lines) {
    lines.resize(most_lines);
    lines.back() += "…";
  }
  const auto columns = static_cast<std::size_t>(std::max(1.0, width / (0.56 * size)));
  for (std::string& line : lines) line = clip_to_width(line, columns);
  return lines;
}

// Title and unit on one line where they fit, else on two.
std::vector<std::string> side_title(const Axis& axis, double room) {
  const auto whole = wrapped(detail::axis_text(axis), room, Canvas::font, 2);
  if (whole.size() < 2 || axis.unit.empty() || axis.title.empty()) return whole;
  auto title = wrapped(axis.title, room, Canvas::font, 1), unit = wrapped("(" + axis.unit + ")", room, Canvas::font, 1);
  title.insert(title.end(), unit.begin(), unit.end());
  return title;
}

// Draws title, note and legend from the top down; returns where the frame may begin.
double draw_head(Canvas& canvas, const Plot& plot, int width) {
  const double room = width - 24;
  double y = 8;
  for (const std::string& line : wrapped(plot.title, room, 15, 2))
    canvas.text(12, y += 18, line, {.size = 15, .bold = true});
  for (const std::string& line : wrapped(plot.note, room, 12, 3))
    canvas.text(12, y += 16, line, {.size = 12, .dim = true});
  const auto named =
      std::count_if(plot.series.begin(), plot.series.end(), [](const Series& s) { return !s.name.empty(); });
  if (named > 1 || (named == 1 && plot.series.size() > 1)) {
    y += 20;
    double x = 12;
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      if (plot.series[s].name.empty()) continue;
      const auto columns = static_cast<std::size_t>((room - detail::legend_mark_width) / (0.56 * Canvas::font));
      const std::string name = clip_to_width(clean_utf8(plot.series[s].name), columns);
      const double needs = detail::legend_mark_width + Canvas::text_width(name);
      if (x > 12 && x + needs > 12 + room) {
        x = 12;
        y += 19;
      }
      detail::draw_legend_mark(canvas, plot, s, x, y - 4.5);
      canvas.text(x + detail::legend_mark_width, y, name, {});
      x += needs + 16;
    }
  }
  return y + 14;
}

bool is_whole(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return !std::isfinite(v) || v == std::floor(v); });
}

std::vector<Tick> ticks_of(const Plot& plot, bool x, const Range& range, int wanted) {
  const Axis& axis = x ? plot.x : plot.y;
  if (axis.categories.empty()) {
    const bool whole =
        std::all_of(plot.series.begin(), plot.series.end(), [&](const Series& s) { return is_whole(x ? s.x : s.y); });
    return axis_ticks(range, axis.scale, wanted, whole);
  }
  std::vector<Tick> ticks;
  for (std::size_t i = 0; i < axis.categories.size(); ++i)
    ticks.push_back({static_cast<double>(i), clean_utf8(axis.categories[i])});
  return ticks;
}

double widest(const std::vector<Tick>& ticks) {
  double width = 0;
  for (const Tick& tick : ticks) width = std::max(width, Canvas::text_width(tick.label));
  return width;
}

void clip_labels(std::vector<Tick>& ticks, double width) {
  for (Tick& tick : ticks)
    tick.label = clip_to_width(tick.label, static_cast<std::size_t>(std::max(3.0, width / (0.56 * Canvas::font))));
}

void draw_x_axis(Canvas& canvas, const Plot& plot, const Frame& frame, std::vector<Tick> ticks, bool turned) {
  // Where there are more names than room, every second, third, ... is written.
  const double slot = ticks.size() < 2 ? 1e9 : std::abs(frame.at_x(ticks[1].value) - frame.at_x(ticks[0].value));
  const double needs = turned ? 15 : widest(ticks) + 8;
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil(needs / std::max(slot, 0.01))));
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const double x = frame.at_x(ticks[i].value);
    if (plot.x.categories.empty()) canvas.line(x, frame.top, x, frame.bottom, "grid");
    if (i % stride != 0) continue;
    if (turned) {
      canvas.text(x + 4, frame.bottom + 14, ticks[i].label, {.anchor = "end", .dim = true, .turned = -35});
    } else {
      canvas.text(x, frame.bottom + 18, ticks[i].label, {.anchor = "middle", .dim = true});
    }
  }
}

void draw_references(Canvas& canvas, const Plot& plot, const Frame& frame) {
  for (const ReferenceLine& line : plot.references) {
    const std::string label = clean_utf8(line.label);
    if (line.direction == ReferenceLine::Direction::horizontal) {
      const double y = frame.at_y(line.value);
      if (!std::isfinite(y)) continue;
      canvas.line(frame.left, y, frame.right, y, "reference");
      if (!label.empty()) {
        canvas.text(frame.right - 4, y - frame.top < 16 ? y + 15 : y - 5, label,
                    {.anchor = "end", .size = 12, .dim = true, .halo = true});
      }
    } else {
      const double x = frame.at_x(line.value);
      if (!std::isfinite(x)) continue;
      canvas.line(x, frame.top, x, frame.bottom, "reference");
      const bool to_left = x + Canvas::text_width(label, 12) + 6 > frame.right;
      if (!label.empty()) {
        canvas.text(x + (to_left ? -5 : 5), frame.top + 12, label,
                    {.anchor = to_left ? "end" : "start", .size = 12, .dim = true, .halo = true});
      }
    }
  }
}

std::string axis_attribute(const Range& range, Scale scale) {
  return fmt::format("{:.9g} {:.9g} {}", range.low, range.high, scale == Scale::linear ? "linear" : "log");
}

std::string document(const Plot& plot, PlotSize size, const Frame& frame, const std::string& markup) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" "
      "aria-label=\"{2}\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, "
      "sans-serif\" "
      "font-size=\"{3}\" data-frame=\"{4:.1f} {5:.1f} {6:.1f} {7:.1f}\" data-x=\"{8}\" data-y=\"{9}\">"
      "<rect class=\"ground\" width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>{10}</svg>\n",
      size.width, size.height, escape_html(plot.title), Canvas::font, frame.left, frame.top, frame.right, frame.bottom,
      axis_attribute(frame.x, frame.x_scale), axis_attribute(frame.y, frame.y_scale), markup);
}

}  // namespace

std::string svg(const Plot& plot, PlotSize size) {
  detail::check_plot(plot);
  size.width = std::max(size.width, 160);
  size.height = std::max(size.height, 160);
  Canvas canvas;
  Frame frame;
  frame.density = size.density;
  frame.x_scale = plot.x.categories.empty() ? plot.x.scale : Scale::linear;
  frame.y_scale = plot.y.categories.empty() ? plot.y.scale : Scale::linear;
  frame.y_down = !plot.y.categories.empty();
  frame.x = range_along(plot, true);
  frame.y = range_along(plot, false);
  const bool no_data = extent_along(plot, true).empty() || extent_along(plot, false).empty();

  frame.top = draw_head(canvas, plot, size.width);
  frame.bottom = size.height - (plot.x.title.empty() && plot.x.unit.empty() ? 28 : 48);
  auto y_ticks = ticks_of(plot, false, frame.y, std::max(2, static_cast<int>((frame.bottom - frame.top) / 45)));
  clip_labels(y_ticks, 0.36 * size.width);
  const auto y_title = side_title(plot.y, frame.bottom - frame.top + 24);
  frame.left = 14 + 17 * static_cast<double>(y_title.size()) + widest(y_ticks) + 6;
  frame.right = size.width - 18;
  auto x_ticks = ticks_of(plot, true, frame.x, std::max(2, static_cast<int>((frame.right - frame.left) / 75)));
  const double slot = (frame.right - frame.left) / std::max<double>(1, static_cast<double>(x_ticks.size()));
  const bool turned = !plot.x.categories.empty() && widest(x_ticks) + 8 > slot;
  if (turned) {
    clip_labels(x_ticks, 0.4 * size.height);
    frame.bottom -= 0.58 * widest(x_ticks);                                    // sin 35°
    frame.left = std::max(frame.left, 0.82 * widest(x_ticks) + 8 - slot / 2);  // cos 35°
  }
  frame.bottom = std::max(frame.bottom, frame.top + 40);

  if (no_data) {
    canvas.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
    canvas.text((frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2, "no data",
                {.anchor = "middle", .dim = true});
  } else {
    for (const Tick& tick : y_ticks) {
      const double y = frame.at_y(tick.value);
      if (plot.y.categories.empty()) canvas.line(frame.left, y, frame.right, y, "grid");
      canvas.text(frame.left - 6, y + 4.5, tick.label, {.anchor = "end", .dim = true});
    }
    draw_x_axis(canvas, plot, frame, x_ticks, turned);
    draw_series(canvas, plot, frame);
    const bool lying =
        frame.y_scale == Scale::linear && frame.y.low <= 0 && frame.y.high > 0 && has_mark(plot, Mark::bars);
    const double ground = lying ? frame.at_y(0) : frame.bottom;
    canvas.line(frame.left, ground, frame.right, ground, "axis");
    if (has_mark(plot, Mark::horizontal_bars)) {
      const double side = frame.x_scale == Scale::linear && frame.x.low < 0 ? frame.at_x(0) : frame.left;
      canvas.line(side, frame.top, side, frame.bottom, "axis");
    }
    draw_references(canvas, plot, frame);
  }
  canvas.text((frame.left + frame.right) / 2, size.height - 10, detail::axis_text(plot.x), {.anchor = "middle"});
  for (std::size_t i = 0; i < y_title.size(); ++i) {
    const double x = 18 + 16 * static_cast<double>(i);
    canvas.text(x, (frame.top + frame.bottom) / 2, y_title[i], {.anchor = "middle", .turned = -90});
  }
  return document(plot, size, frame, canvas.markup());
}

}  // namespace kullback
