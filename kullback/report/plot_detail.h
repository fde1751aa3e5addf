#pragma once

#include <string>

#include "kullback/report/number.h"
#include "kullback/report/plot.h"

// What plot.cpp and plot_draw.cpp share.
namespace kullback::detail {

/// "Loss (nats)".
std::string axis_text(const Axis& axis);
/// Throws std::invalid_argument where columns of a series differ in length.
void check_plot(const Plot& plot);
/// Whether a value has a place on an axis of this scale.
bool shows(double value, Scale scale);
/// What is shown on hover over a point.
std::string point_text(const Plot& plot, const Series& series, std::size_t i);

/// The two axes in pixels.
struct Frame {
  double left = 0, top = 0, right = 0, bottom = 0;
  Range x, y;
  Scale x_scale = Scale::linear, y_scale = Scale::linear;
  bool y_down = false;  ///< position 0 at the top: categories of horizontal bars
  double density = 1;

  double at_x(double value) const;  ///< NaN where the value has no place
  double at_y(double value) const;
  std::size_t columns() const;  ///< to which series are thinned
  std::size_t rows() const;
};

/// A growing SVG document. Colours are attributes, so that the file stands alone, and classes, so that a page can
/// change them.
class Canvas {
 public:
  static constexpr double font = 13;

  struct TextStyle {
    const char* anchor = "start";
    double size = font;
    bool bold = false, dim = false, halo = false;
    double turned = 0;  ///< degrees
  };
  void text(double x, double y, const std::string& text, const TextStyle& style);
  void line(double x1, double y1, double x2, double y2, const char* kind);  ///< kind "grid", "axis" or "reference"
  void add(const std::string& markup) { markup_ += markup; }
  const std::string& markup() const { return markup_; }

  /// About the width of a text in pixels; font metrics are not known here, so a little more than most faces take.
  static double text_width(const std::string& text, double size = font);

 private:
  std::string markup_;
};

void draw_series(Canvas& canvas, const Plot& plot, const Frame& frame);
void draw_legend_mark(Canvas& canvas, const Plot& plot, std::size_t series, double x, double y);
constexpr double legend_mark_width = 22;

}  // namespace kullback::detail
