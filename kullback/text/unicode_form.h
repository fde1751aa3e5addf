#pragma once

#include "kullback/text/normalizer.h"

namespace kullback {

TracedText in_unicode_form(const UnicodeForm& form, const TracedText& text);

}  // namespace kullback
