#pragma once

#include <string>

#include "kullback/report/page.h"
#include "kullback/report/table.h"

namespace kullback {

/// The text with its title, each piece on a ground that is the redder the larger its value. Without colours: the pieces of at least
/// half the full value stand between brackets.
std::string shaded_terminal(const ShadedText& text, const TerminalStyle& style = {});

}  // namespace kullback
