#pragma once

#include <string_view>

namespace kullback::detail {

/// The static part of a page's style sheet; the palette's variables --c0, --c1, ... are added by page.cpp.
std::string_view page_style();
/// The page's only script: values on hover, sorting, the download of the data.
std::string_view page_script();

}  // namespace kullback::detail
