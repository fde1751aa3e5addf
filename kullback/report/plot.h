#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/report/ticks.h"

namespace kullback {

struct Axis {
  std::string title = {};
  std::string unit = {};                             ///< "nats", "tokens"; shown in brackets behind the title
  Scale scale = Scale::linear;                       ///< values <= 0 are gaps on a logarithmic scale
  std::optional<double> minimum = {}, maximum = {};  ///< the axis reaches at least so far; all data is always shown
  std::vector<std::string> categories = {};          ///< names for the positions 0, 1, 2, ... instead of numbers
};

enum class Mark { line, points, step, bars, horizontal_bars };

/// One series. Values that are not finite are gaps. Intervals are empty or as long as the series; they are drawn as a
/// band behind lines and steps, as error bars otherwise.
struct Series {
  std::string name = {};
  Mark mark = Mark::line;
  std::vector<double> x = {}, y = {};           ///< of horizontal bars, x is the length and y the position
  std::vector<double> low = {}, high = {};      ///< interval of the value: of y, and of x for horizontal bars
  std::vector<double> x_low = {}, x_high = {};  ///< interval of x (not for horizontal bars)
  std::vector<std::string> labels = {};         ///< empty, or a name for each point, shown on hover
  bool show_labels = false;                     ///< write the labels beside the points
  bool dashed = false;
  bool faint = false;  ///< drawn pale, for raw values behind their mean
  int colour = -1;     ///< number in the palette; -1: the series' place
};

/// A straight line through the whole plot.
struct ReferenceLine {
  enum class Direction { horizontal, vertical } direction = Direction::horizontal;
  double value = 0;
  std::string label = {};
};

struct Plot {
  std::string title = {};
  std::string note = {};  ///< one sentence under the title
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
};

/// Size in CSS pixels; text is about 13 pixels high whatever the size.
struct PlotSize {
  int width = 640, height = 360;
  double density = 1;  ///< most columns of points a pixel that a line is thinned to; less makes a smaller file
};

/// The plot as one SVG document that stands alone: white ground, no script, no outer font or style. Its elements also
/// carry classes, so that a page can recolour them, and its geometry in `data-` attributes, so that a page can show
/// values. Throws std::invalid_argument where x and y, or values and intervals, differ in length.
std::string svg(const Plot& plot, PlotSize size = {});

/// Titles, units and series as JSON. Series longer than `limit` points are thinned as they are for drawing and marked
/// `"thinned_from": N`.
Json plot_data(const Plot& plot, std::size_t limit = 2000);

/// The palette, told apart by people with any common colour blindness; on white and on dark ground.
struct PlotColour {
  const char* light;
  const char* dark;
};
const std::vector<PlotColour>& plot_palette();

}  // namespace kullback
