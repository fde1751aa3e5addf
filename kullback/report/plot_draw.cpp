#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kullback/report/decimate.h"
#include "kullback/report/escape.h"
#include "kullback/report/plot_detail.h"

// Series as SVG marks.
namespace kullback::detail {
namespace {

constexpr std::size_t points_with_title = 80;  // more would only cost bytes: a page shows values by its crosshair
constexpr double points_in_cloud = 2500;

double to_pixels(double value, const Range& range, Scale scale, double from, double to) {
  if (!shows(value, scale)) return std::nan("");
  value = std::clamp(value, -1e300, 1e300);  // as axis_range does
  const double share = scale == Scale::linear ? (value - range.low) / (range.high - range.low)
                                              : std::log(value / range.low) / std::log(range.high / range.low);
  return std::clamp(from + share * (to - from), -1e5, 1e5);
}

struct Colour {
  std::size_t place;
  bool dashed;
  std::string stroke() const {
    return fmt::format("class=\"s{0}\" stroke=\"{1}\"", place, plot_palette()[place].light);
  }
  std::string fill() const { return fmt::format("class=\"f{0}\" fill=\"{1}\"", place, plot_palette()[place].light); }
};

Colour colour_of(const Plot& plot, std::size_t s) {
  const auto& series = plot.series[s];
  const std::size_t wanted = series.colour >= 0 ? static_cast<std::size_t>(series.colour) : s;
  const std::size_t colours = plot_palette().size();
  return {wanted % colours, series.dashed || (wanted / colours) % 2 == 1};
}

std::string title_of(const Plot& plot, const Series& series, std::size_t i) {
  return "<title>" + escape_html(point_text(plot, series, i)) + "</title>";
}

struct Pixel {
  double x = 0, y = 0;
  std::size_t index = 0;
  bool drawn() const { return std::isfinite(x) && std::isfinite(y); }
};

std::string path_of(const std::vector<Pixel>& pixels, bool steps) {
  std::string path;
  bool open = false;
  double last_y = 0;
  for (const Pixel& p : pixels) {
    if (!p.drawn()) {
      open = false;
      continue;
    }
    if (!open) {
      path += fmt::format("M{:.1f} {:.1f}", p.x, p.y);
    } else if (steps) {
      path += fmt::format("H{:.1f}", p.x);
      if (std::abs(p.y - last_y) > 0.05) path += fmt::format("V{:.1f}", p.y);
    } else {
      path += fmt::format("L{:.1f} {:.1f}", p.x, p.y);
    }
    open = true;
    last_y = p.y;
  }
  return path;
}

// The interval as one closed outline for each run without a gap.
std::string band_of(const Series& series, const std::vector<Pixel>& pixels, const Frame& frame, bool steps) {
  std::string path, back;
  std::vector<std::pair<double, double>> lower;  // in pixels
  double last_high = 0;
  const auto close = [&] {
    for (auto it = lower.rbegin(); it != lower.rend(); ++it) {
      path += fmt::format("L{:.1f} {:.1f}", it->first, it->second);
      if (steps && it + 1 != lower.rend()) path += fmt::format("V{:.1f}", (it + 1)->second);
    }
    if (!lower.empty()) path += "Z";
    lower.clear();
  };
  for (const Pixel& p : pixels) {
    const double low = frame.at_y(series.low[p.index]), high = frame.at_y(series.high[p.index]);
    if (!p.drawn() || !std::isfinite(low) || !std::isfinite(high)) {
      close();
      continue;
    }
    if (lower.empty()) {
      path += fmt::format("M{:.1f} {:.1f}", p.x, high);
    } else if (steps) {
      path += fmt::format("L{:.1f} {:.1f}V{:.1f}", p.x, last_high, high);
    } else {
      path += fmt::format("L{:.1f} {:.1f}", p.x, high);
    }
    lower.emplace_back(p.x, low);
    last_high = high;
  }
  close();
  return path;
}

bool alone(const std::vector<Pixel>& pixels, std::size_t i) {
  return (i == 0 || !pixels[i - 1].drawn()) && (i + 1 == pixels.size() || !pixels[i + 1].drawn());
}

void draw_line(Canvas& canvas, const Plot& plot, std::size_t s, const Frame& frame) {
  const Series& series = plot.series[s];
  const Colour colour = colour_of(plot, s);
  const bool steps = series.mark == Mark::step;
  std::vector<Pixel> pixels;
  for (const std::size_t i : decimate_line(series.y, series.low, series.high, frame.columns())) {
    pixels.push_back({frame.at_x(series.x[i]), frame.at_y(series.y[i]), i});
  }
  if (!series.low.empty()) {
    canvas.add(
        fmt::format("<path d=\"{}\" {} fill-opacity=\"0.16\"/>", band_of(series, pixels, frame, steps), colour.fill()));
  }
  canvas.add(fmt::format("<path d=\"{}\" fill=\"none\" {} stroke-width=\"{}\" stroke-linejoin=\"round\"{}{}/>",
                         path_of(pixels, steps), colour.stroke(), pixels.size() > 600 || series.faint ? 1.2 : 2.0,
                         colour.dashed ? " stroke-dasharray=\"6 4\"" : "",
                         series.faint ? " stroke-opacity=\"0.45\"" : ""));
  const bool few = pixels.size() <= points_with_title && !series.faint;
  std::string dots;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (!pixels[i].drawn() || !(few || alone(pixels, i))) continue;
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>", pixels[i].x, pixels[i].y,
                        pixels.size() <= 30 || alone(pixels, i) ? 3 : 2,
                        few ? title_of(plot, series, pixels[i].index) : "");
  }
  if (!dots.empty()) canvas.add(fmt::format("<g {}>{}</g>", colour.fill(), dots));
}

// Error bars with small caps, across or upright.
std::string error_bar(double x1, double y1, double x2, double y2) {
  if (!std::isfinite(x1) || !std::isfinite(x2) || !std::isfinite(y1) || !std::isfinite(y2)) return {};
  const double cap_x = x1 == x2 ? 3 : 0, cap_y = x1 == x2 ? 0 : 3;
  return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}M{:.1f} {:.1f}L{:.1f} {:.1f}M{:.1f} {:.1f}L{:.1f} {:.1f}", x1, y1, x2,
                     y2, x1 - cap_x, y1 - cap_y, x1 + cap_x, y1 + cap_y, x2 - cap_x, y2 - cap_y, x2 + cap_x,
                     y2 + cap_y);
}

// Names beside points, each on the first side where it meets neither the edge nor an earlier name.
struct NamePlacer {
  struct Box {
    double left, top, right, bottom;
  };
  std::vector<Box> taken;

  bool free(const Box& box, const Frame& frame) const {
    if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
      return false;
    return std::none_of(taken.begin(), taken.end(), [&](const Box& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
    });
  }

  void place(Canvas& canvas, const Frame& frame, const Pixel& p, const std::string& name) {
    const double width = Canvas::text_width(name, 12), half = width / 2;
    const Box sides[] = {{p.x + 7, p.y - 7, p.x + 7 + width, p.y + 7},
                         {p.x - 7 - width, p.y - 7, p.x - 7, p.y + 7},
                         {p.x - half, p.y - 21, p.x + half, p.y - 7},
                         {p.x - half, p.y + 7, p.x + half, p.y + 21}};
    for (const Box& box : sides) {
      if (!free(box, frame)) continue;
      taken.push_back(box);
      canvas.text((box.left + box.right) / 2, box.bottom - 3, name, {.anchor = "middle", .size = 12, .halo = true});
      return;
    }
  }
};

// The points that are drawn, in pixels.
std::vector<Pixel> cloud_of(const Series& series, const Frame& frame) {
  std::vector<double> x(series.x.size()), y(series.x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = frame.at_x(series.x[i]);
    y[i] = frame.at_y(series.y[i]);
  }
  std::vector<Pixel> cloud;
  const double limit = std::max(100.0, points_in_cloud * std::min(1.0, frame.density));
  for (const std::size_t i : decimate_points(x, y, static_cast<std::size_t>(limit))) cloud.push_back({x[i], y[i], i});
  return cloud;
}

void draw_points(Canvas& canvas, const Plot& plot, std::size_t s, const Frame& frame) {
  const Series& series = plot.series[s];
  const Colour colour = colour_of(plot, s);
  const auto cloud = cloud_of(series, frame);
  const bool crowd = cloud.size() > 300;
  std::string bars, dots;
  for (const Pixel& p : cloud) {
    const std::size_t i = p.index;
    if (!series.low.empty()) bars += error_bar(p.x, frame.at_y(series.low[i]), p.x, frame.at_y(series.high[i]));
    if (!series.x_low.empty()) bars += error_bar(frame.at_x(series.x_low[i]), p.y, frame.at_x(series.x_high[i]), p.y);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>", p.x, p.y, crowd ? 1.6 : 4.5,
                        cloud.size() <= 4 * points_with_title ? title_of(plot, series, i) : "");
  }
  if (!bars.empty())
    canvas.add(fmt::format("<path d=\"{}\" fill=\"none\" {} stroke-width=\"1.3\" stroke-opacity=\"0.7\"/>", bars,
                           colour.stroke()));
  canvas.add(fmt::format("<g {} fill-opacity=\"{}\">{}</g>", colour.fill(), crowd ? 0.6 : 0.9, dots));
}

// After all series, so that no mark hides a name.
void draw_names(Canvas& canvas, const Plot& plot, const Frame& frame) {
  NamePlacer names;
  std::vector<std::vector<Pixel>> clouds;
  for (const Series& series : plot.series) {
    clouds.push_back(series.mark == Mark::points ? cloud_of(series, frame) : std::vector<Pixel>{});
    for (const Pixel& p : clouds.back()) names.taken.push_back({p.x - 5, p.y - 5, p.x + 5, p.y + 5});
  }
  for (std::size_t s = 0; s < clouds.size(); ++s) {
    if (!plot.series[s].show_labels || plot.series[s].labels.empty()) continue;
    for (const Pixel& p : clouds[s]) names.place(canvas, frame, p, clean_utf8(plot.series[s].labels[p.index]));
  }
}

// The room between neighbouring bars, in the units of their axis.
double spacing_of(const Plot& plot, Mark mark) {
  std::vector<double> positions;
  for (const Series& series : plot.series) {
    if (series.mark != mark) continue;
    for (const double p : mark == Mark::bars ? series.x : series.y) {
      if (std::isfinite(p)) positions.push_back(p);
    }
  }
  std::sort(positions.begin(), positions.end());
  double spacing = HUGE_VAL;
  for (std::size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] > positions[i - 1]) spacing = std::min(spacing, positions[i] - positions[i - 1]);
  }
  return std::isfinite(spacing) ? spacing : 1;
}

void draw_bars(Canvas& canvas, const Plot& plot, std::size_t s, const Frame& frame) {
  const Series& series = plot.series[s];
  const Colour colour = colour_of(plot, s);
  const bool sideways = series.mark == Mark::horizontal_bars;
  const auto is_like = [&](const Series& other) { return other.mark == series.mark; };
  const auto total = static_cast<double>(std::count_if(plot.series.begin(), plot.series.end(), is_like));
  const auto before = static_cast<double>(
      std::count_if(plot.series.begin(), plot.series.begin() + static_cast<std::ptrdiff_t>(s), is_like));
  const double spacing = spacing_of(plot, series.mark), width = 0.8 * spacing / total;
  const auto& positions = sideways ? series.y : series.x;
  const auto& values = sideways ? series.x : series.y;
  const auto position_at = [&](double v) { return sideways ? frame.at_y(v) : frame.at_x(v); };
  const auto value_at = [&](double v) { return sideways ? frame.at_x(v) : frame.at_y(v); };
  const Scale scale = sideways ? frame.x_scale : frame.y_scale;
  const double ground = scale == Scale::logarithmic ? (sideways ? frame.left : frame.bottom) : value_at(0);

  const auto kept = decimate_line(values, series.low, series.high, sideways ? frame.rows() : frame.columns());
  std::string rectangles, bars;
  for (const std::size_t i : kept) {
    const double value = value_at(values[i]), start = positions[i] + width * (before - total / 2);
    const double a = position_at(start), b = position_at(start + width);
    if (!std::isfinite(value) || !std::isfinite(a) || !std::isfinite(b)) continue;
    const double near = std::min(a, b), thick = std::max(0.5, std::abs(b - a) - (std::abs(b - a) > 4 ? 1 : 0));
    const double from = std::min(value, ground), length = std::abs(value - ground);
    rectangles +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"1\">{}</rect>",
                    sideways ? from : near, sideways ? near : from, sideways ? length : thick,
                    sideways ? thick : length, kept.size() <= 4 * points_with_title ? title_of(plot, series, i) : "");
    if (series.low.empty()) continue;
    const double middle = near + thick / 2, low = value_at(series.low[i]), high = value_at(series.high[i]);
    bars += sideways ? error_bar(low, middle, high, middle) : error_bar(middle, low, middle, high);
  }
  canvas.add(fmt::format("<g {} fill-opacity=\"0.85\">{}</g>", colour.fill(), rectangles));
  if (!bars.empty())
    canvas.add(
        fmt::format("<path d=\"{}\" fill=\"none\" class=\"whisker\" stroke=\"#333\" stroke-width=\"1.3\"/>", bars));
}

}  // namespace

double Frame::at_x(double value) const { return to_pixels(value, x, x_scale, left, right); }
double Frame::at_y(double value) const {
  return to_pixels(value, y, y_scale, y_down ? top : bottom, y_down ? bottom : top);
}

std::size_t Frame::columns() const { return static_cast<std::size_t>(std::max(8.0, density * (right - left))); }
std::size_t Frame::rows() const { return static_cast<std::size_t>(std::max(8.0, density * (bottom - top))); }

void draw_series(Canvas& canvas, const Plot& plot, const Frame& frame) {
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    switch (plot.series[s].mark) {
      case Mark::line:
      case Mark::step: draw_line(canvas, plot, s, frame); break;
      case Mark::points: draw_points(canvas, plot, s, frame); break;
      case Mark::bars:
      case Mark::horizontal_bars: draw_bars(canvas, plot, s, frame); break;
    }
  }
  const bool named = std::any_of(plot.series.begin(), plot.series.end(),
                                 [](const Series& s) { return s.mark == Mark::points && s.show_labels; });
  if (named) draw_names(canvas, plot, frame);
}

void draw_legend_mark(Canvas& canvas, const Plot& plot, std::size_t s, double x, double y) {
  const Colour colour = colour_of(plot, s);
  switch (plot.series[s].mark) {
    case Mark::line:
    case Mark::step:
      canvas.add(fmt::format("<path d=\"M{:.1f} {:.1f}h{}\" {} stroke-width=\"3\"{}{}/>", x, y, 16, colour.stroke(),
                             colour.dashed ? " stroke-dasharray=\"5 3\"" : "",
                             plot.series[s].faint ? " stroke-opacity=\"0.45\"" : ""));
      break;
    case Mark::points:
      canvas.add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" {}/>", x + 9, y, colour.fill()));
      break;
    case Mark::bars:
    case Mark::horizontal_bars:
      canvas.add(fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"10\" rx=\"1\" {}/>", x + 3, y - 5,
                             colour.fill()));
      break;
  }
}

}  // namespace kullback::detail
