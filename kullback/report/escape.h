#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kullback/base/json.h"

namespace kullback {

/// Valid UTF-8 without control characters: each invalid byte and each control character but newline and tab becomes
/// U+FFFD. Carriage returns before a newline vanish.
std::string clean_utf8(std::string_view text);

/// `text`, cleaned, for an element's content or a quoted attribute of HTML, XML or SVG.
std::string escape_html(std::string_view text);

/// JSON that can stand inside `<script type="application/json">`: no `</script>`, no `<!--`; invalid UTF-8 replaced.
/// NaN and infinities become null.
std::string json_for_script(const Json& value);

/// `text`, cleaned and put on one line, for a cell of a Markdown table.
std::string escape_markdown(std::string_view text);

/// A CSV field after RFC 4180: quoted where it holds a comma, quote, line break or outer blank.
std::string escape_csv(std::string_view text);

/// Columns that the text takes in a terminal: 2 for wide characters, 0 for combining ones. Wants clean UTF-8.
std::size_t display_width(std::string_view text);

/// The longest beginning that fits `width` columns, ended by "…" where something was cut.
std::string clip_to_width(std::string_view text, std::size_t width);

/// At most `bytes` of the text, cut between characters. `cut` tells whether something was left out.
std::string_view clip_to_bytes(std::string_view text, std::size_t bytes, bool* cut = nullptr);

}  // namespace kullback
