#include "kullback/text/jinja_outline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace kullback {
namespace {

constexpr std::string_view blanks = " \t\r\n\f\v";

std::string_view stripped(std::string_view text) {
  const auto begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Part {
  enum class Kind { text, expression, statement } kind;
  std::string content;
};

/// Position of the tag's end, past any that stands inside a string literal.
std::size_t end_of_tag(std::string_view jinja, std::size_t at, std::string_view closing) {
  char quote = 0;
  for (; at < jinja.size(); ++at) {
    if (quote != 0) {
      if (jinja[at] == '\\')
        ++at;
      else if (jinja[at] == quote)
        quote = 0;
    } else if (closing != "#}" && (jinja[at] == '\'' || jinja[at] == '"')) {
      quote = jinja[at];
    } else if (jinja.substr(at).starts_with(closing)) {
      return at;
    }
  }
  return std::string_view::npos;
}

/// Drops blanks after the last line break: lstrip_blocks.
void strip_indent(std::string& text) {
  const auto last = text.find_last_not_of(" \t");
  if (last == std::string::npos)
    text.clear();
  else if (text[last] == '\n')
    text.resize(last + 1);
}

std::vector<Part> parts_of(std::string_view jinja) {
  std::vector<Part> parts;
  if (jinja.ends_with('\n')) jinja.remove_suffix(1);  // Jinja drops one at the end
  std::size_t at = 0;
  bool strip_left = false;    // the tag before ended in "-}}" or the like
  bool drop_newline = false;  // the tag before was a block: trim_blocks
  while (at < jinja.size()) {
    std::size_t open = at;
    while (open < jinja.size() &&
           !(jinja[open] == '{' && open + 1 < jinja.size() && contains("{%#", jinja.substr(open + 1, 1))))
      ++open;
    std::string text(jinja.substr(at, open - at));
    if (drop_newline && text.starts_with('\n')) text.erase(0, 1);
    if (strip_left) text.erase(0, std::min(text.find_first_not_of(blanks), text.size()));
    if (open >= jinja.size()) {
      parts.push_back({Part::Kind::text, text});
      break;
    }
    const char kind = jinja[open + 1];
    const std::string_view closing = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    std::size_t begin = open + 2;
    if (begin < jinja.size() && jinja[begin] == '-') {
      ++begin;
      const auto last = text.find_last_not_of(blanks);
      text.resize(last == std::string::npos ? 0 : last + 1);
    } else if (kind != '{') {
      strip_indent(text);
    }
    parts.push_back({Part::Kind::text, text});
    const std::size_t end = end_of_tag(jinja, begin, closing);
    if (end == std::string_view::npos) break;
    strip_left = end > begin && jinja[end - 1] == '-';
    drop_newline = kind != '{';
    const std::string_view content = stripped(jinja.substr(begin, end - begin - (strip_left ? 1 : 0)));
    if (kind == '{') parts.push_back({Part::Kind::expression, std::string(content)});
    if (kind == '%') parts.push_back({Part::Kind::statement, std::string(content)});
    at = end + 2;
  }
  return parts;
}

std::optional<std::string> literal(std::string_view operand) {
  if (operand.size() < 2 || (operand[0] != '\'' && operand[0] != '"') || operand.back() != operand[0])
    return std::nullopt;
  std::string text;
  for (std::size_t i = 1; i + 1 < operand.size(); ++i) {
    if (operand[i] == operand[0]) return std::nullopt;
    if (operand[i] != '\\' || i + 2 >= operand.size()) {
      text += operand[i];
      continue;
    }
    const char escaped = operand[++i];
    text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
  }
  return text;
}

std::string placeholder(std::string_view operand) {
  const bool trims = contains(operand, "trim") || contains(operand, ".strip()");
  const auto named = [&](std::string_view name) { return "{" + std::string(name) + (trims ? "|trim}" : "}"); };
  if (contains(operand, "bos_token")) return "{bos}";
  if (contains(operand, "eos_token")) return "{eos}";
  if (contains(operand, "date_string")) return "{date}";
  if (contains(operand, "system_message") || contains(operand, "messages[0]") ||
      contains(operand, "first_user_prefix")) {
    return named("system");
  }
  if (contains(operand, "content")) return named("content");
  if (contains(operand, "role")) return "{role}";
  return "{?}";
}

/// Operands of a sum (Jinja's + and ~), each as literal text or placeholder.
std::string outline_of(std::string_view expression) {
  std::string out;
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  const auto operand = [&](std::size_t end) {
    std::string_view text = stripped(expression.substr(begin, end - begin));
    while (text.size() > 1 && text.front() == '(' && text.back() == ')')
      text = stripped(text.substr(1, text.size() - 2));
    if (!text.empty()) {
      const auto plain = literal(text);
      out += plain ? *plain : placeholder(text);
    }
    begin = end + 1;
  };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (quote != 0) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    } else if ((c == '+' || c == '~') && depth == 0) {
      operand(i);
    }
  }
  operand(expression.size());
  return out;
}

/// Whether a branch is for what our conversations do not have.
bool is_foreign(std::string_view condition) {
  constexpr std::array foreign{"tool",        "ipython",     "document",   "image",
                               "is iterable", "is sequence", "is mapping", "builtin"};
  if (condition.starts_with("not ") || contains(condition, "'user'") || contains(condition, "\"user\"")) return false;
  return std::any_of(foreign.begin(), foreign.end(), [&](const char* word) { return contains(condition, word); });
}

/// The right-hand side of an assignment that makes text: one with a literal in a sum.
std::string_view assigned_text(std::string_view statement) {
  const auto equals = statement.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view value = stripped(statement.substr(equals + 1));
  const bool sum = contains(value, "+") || contains(value, "~");
  const bool text = contains(value, "'") || contains(value, "\"") || contains(value, "bos_token");
  return sum && text ? value : std::string_view{};
}

std::string_view first_word(std::string_view statement) { return statement.substr(0, statement.find_first_of(blanks)); }

}  // namespace

std::string jinja_outline(std::string_view jinja) {
  std::string out;
  struct Block {
    bool outside;  // the blocks around it are written
    bool written;
  };
  std::vector<Block> blocks{{true, true}};
  for (const Part& part : parts_of(jinja)) {
    const bool written = blocks.back().written;
    if (part.kind == Part::Kind::text) {
      if (written) out += part.content;
      continue;
    }
    if (part.kind == Part::Kind::expression) {
      if (written && !contains(part.content, "raise_exception")) out += outline_of(part.content);
      continue;
    }
    const std::string_view word = first_word(part.content);
    const std::string_view rest = stripped(std::string_view(part.content).substr(word.size()));
    if (word == "if" || word == "for" || word == "macro") {
      blocks.push_back({written, written && word != "macro" && !is_foreign(rest)});
      if (blocks.back().written && contains(rest, "loop.last")) out += "{last}";
    } else if (word == "elif" && blocks.size() > 1) {
      blocks.back().written = blocks.back().outside && !is_foreign(rest);
    } else if (word == "else" && blocks.size() > 1) {
      blocks.back().written = blocks.back().outside;
    } else if (word.starts_with("end") && word != "endgeneration" && blocks.size() > 1) {
      blocks.pop_back();
    } else if (word == "set" && written) {
      out += outline_of(assigned_text(rest));
    }
  }
  return out;
}

}  // namespace kullback
