#pragma once

#include <string>
#include <string_view>

namespace kullback {

/// What a chat template written in Jinja puts out, in order, without the conditions: literal text as it is, and the values in
/// braces: {content}, {system} (the first message's content), {role}, {bos}, {eos}, {date}, or {?} for anything else;
/// {content|trim} and {system|trim} where white space around them is dropped; {last} where a branch begins that is for
/// the last message alone. Branches for tools, documents and
/// images are left out, since our conversations have none; so are messages of errors. White space goes by the settings of
/// Hugging Face's renderer (trim_blocks and lstrip_blocks).
std::string jinja_outline(std::string_view jinja);

}  // namespace kullback
