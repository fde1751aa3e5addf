#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/report/number.h"
#include "kullback/report/plot.h"
#include "kullback/report/table.h"

namespace kullback {

enum class Better { neither, higher, lower };

/// Good or bad where a change has a direction and the intervals, if there are any, lie apart; else plain.
Tone change_tone(const Interval& before, const Interval& after, Better better);

/// A big number at the top of a page. Without `before`, `after` stands alone.
struct HeadlineNumber {
  std::string label = {};
  Interval before = {}, after = {};
  NumberFormat format = {};
  std::string unit = {};
  Better better = Better::neither;  ///< which direction is shown as good
  std::string note = {};
};

struct Paragraph {
  std::string text = {};
  enum class Kind { plain, muted, warning } kind = Kind::plain;
};

/// Plots in a grid of up to two columns; one alone takes the width.
struct Plots {
  std::vector<Plot> plots = {};
};

/// One prompt with named answers side by side, e.g. "before" and "after".
struct Sample {
  std::string prompt = {};
  struct Answer {
    std::string name = {}, text = {}, note = {};
  };
  std::vector<Answer> answers = {};
};
struct Samples {
  std::vector<Sample> samples = {};
};

/// A text whose pieces are shaded by a value, e.g. the divergence at each token.
struct ShadedText {
  std::string title = {};
  std::string value_name = {}, unit = {};
  struct Piece {
    std::string text;
    double value = 0;  ///< >= 0
    std::string note;  ///< shown on hover beside the value
  };
  std::vector<Piece> pieces = {};
  double full = 0;  ///< the value of the darkest shade; 0: the largest of the pieces
};

/// Text as it is, in a fixed-width face; folded away where `folded`.
struct Code {
  std::string title = {}, text = {};
  bool folded = false;
};

using Block = std::variant<Paragraph, Plots, Table, Samples, ShadedText, Code>;

struct PageSection {
  std::string title = {};
  std::vector<Block> blocks = {};
};

/// A self-contained page: no network, light and dark, phone to wide screen, tables sorted by a click, values on
/// hover, its data embedded and downloadable.
struct Page {
  std::string title = {};
  std::vector<std::string> summary = {};  ///< short lines under the title
  std::vector<HeadlineNumber> numbers = {};
  std::vector<PageSection> sections = {};
  Json data = Json::object();        ///< joined to the plots' and tables' data under the key "extra"
  std::string file_name = "report";  ///< of the downloaded data, without ending
  std::string footer = {};
};

/// The page as one HTML document of at most `limit` bytes. Long samples, long tables, series of many points and rows
/// of many plots are cut, with a note, first a little and then harder, until it fits. Throws Error where even that is
/// not enough.
std::string page_html(const Page& page, std::size_t limit = 2'000'000);

}  // namespace kullback
