#include "kullback/text/pre_tokenizer.h"

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

const Pattern& gpt2_pattern() {
  static const Pattern pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  return pattern;
}

/// A stretch of a piece that matches a pattern, or lies between matches.
struct Part {
  ByteRange range;
  bool match;
};

std::vector<Part> parts_of(const std::vector<ByteRange>& matches, std::size_t size, bool invert) {
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const ByteRange& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
  return parts;
}

std::vector<ByteRange> arrange(Split::Behavior behavior, const std::vector<Part>& parts) {
  std::vector<ByteRange> out;
  bool before = false;  // the part before was a match
  for (const Part& part : parts) {
    const bool join = !out.empty() && ((behavior == Split::Behavior::merged_with_previous && part.match && !before) ||
                                       (behavior == Split::Behavior::merged_with_next && before && !part.match) ||
                                       (behavior == Split::Behavior::contiguous && part.match == before));
    if (join) {
      out.back().end = part.range.end;
    } else if (behavior != Split::Behavior::removed || !part.match) {
      out.push_back(part.range);
    }
    before = part.match;
  }
  return out;
}

/// Replaces each valid piece by what `divide(text of the piece)` makes of it.
template <class Divide>
void split_pieces(Section& section, Divide divide) {
  std::vector<Piece> out;
  out.reserve(section.pieces.size());
  for (const Piece& piece : section.pieces) {
    if (!piece.valid) {
      out.push_back(piece);
      continue;
    }
    const auto text = std::string_view(section.text.text()).substr(piece.range.begin, piece.range.size());
    for (const ByteRange& part : divide(text)) {
      out.push_back({{piece.range.begin + part.begin, piece.range.begin + part.end}, true});
    }
  }
  section.pieces = std::move(out);
}

void split(Section& section, const Pattern& pattern, Split::Behavior behavior, bool invert) {
  split_pieces(section, [&](std::string_view text) {
    return arrange(behavior, parts_of(pattern.matches(text), text.size(), invert));
  });
}

void run(const Split& step, Section& section) { split(section, step.pattern, step.behavior, step.invert); }

/// Splits at the characters for which `is_match` holds, each a match of its own.
template <class Test>
void split_at_characters(Section& section, Split::Behavior behavior, Test is_match) {
  split_pieces(section, [&](std::string_view text) {
    std::vector<ByteRange> matches;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      const ByteRange range{at, at + point.size};
      if (is_match(point.value)) matches.push_back(range);
      at = range.end;
    }
    return arrange(behavior, parts_of(matches, text.size(), false));
  });
}

void run(const Digits& step, Section& section) {
  split_at_characters(section, step.individual ? Split::Behavior::isolated : Split::Behavior::contiguous, is_numeric);
}

bool is_ascii_symbol(char32_t c) {
  return c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' || c == '|' || c == '~';
}
bool is_symbol(char32_t c) { return is_punctuation(c) || is_ascii_symbol(c); }

void run(const WhitespaceSplit&, Section& section) { split_at_characters(section, Split::Behavior::removed, is_space); }

void run(const Whitespace&, Section& section) {
  static const Pattern pattern(R"(\w+|[^\w\s]+)");
  split(section, pattern, Split::Behavior::removed, true);
}

void run(const Punctuation& step, Section& section) { split_at_characters(section, step.behavior, is_symbol); }

void run(const BertPreTokenizer&, Section& section) {
  split_at_characters(section, Split::Behavior::removed, is_space);
  split_at_characters(section, Split::Behavior::isolated, is_symbol);
}

/// Writes the pieces anew: `write(piece, out)` appends what becomes of one.
template <class Write>
void rewrite_pieces(Section& section, Write write) {
  TracedText text = section.text.rewritten();
  for (Piece& piece : section.pieces) {
    const std::size_t begin = text.text().size();
    write(piece, text);
    piece.range = {begin, text.text().size()};
  }
  section.text = std::move(text);
}

std::string_view text_of(const Section& section, const Piece& piece) {
  return std::string_view(section.text.text()).substr(piece.range.begin, piece.range.size());
}

/// A text put before a piece counts as coming from the piece's first character.
ByteRange first_character(const Section& section, const Piece& piece) {
  return {piece.range.begin, piece.range.begin + code_point_at(text_of(section, piece), 0).size};
}

void add_prefix_spaces(Section& section) {
  rewrite_pieces(section, [&](const Piece& piece, TracedText& out) {
    if (!text_of(section, piece).starts_with(' ')) out.append(" ", section.text, first_character(section, piece));
    out.append_same(section.text, piece.range);
  });
}

void run(const Metaspace& step, Section& section) {
  const TracedText& text = section.text;
  rewrite_pieces(section, [&](const Piece& piece, TracedText& out) {
    const std::string_view bytes = text_of(section, piece);
    const bool first = section.at_start && text.origin(piece.range).begin == 0;
    const bool prepend =
        step.prepend == Metaspace::Prepend::always || (step.prepend == Metaspace::Prepend::first && first);
    if (prepend && !bytes.starts_with(' ') && !bytes.starts_with(step.replacement)) {
      out.append(step.replacement, text, first_character(section, piece));
    }
    std::size_t done = 0;
    for (std::size_t at = bytes.find(' '); at != std::string_view::npos; at = bytes.find(' ', done)) {
      out.append_same(text, {piece.range.begin + done, piece.range.begin + at});
      out.append(step.replacement, text, {piece.range.begin + at, piece.range.begin + at + 1});
      done = at + 1;
    }
    out.append_same(text, {piece.range.begin + done, piece.range.end});
  });
  if (step.split) split(section, Pattern::literal(step.replacement), Split::Behavior::merged_with_next, false);
}

void run(const ByteLevel& step, Section& section) {
  if (step.add_prefix_space) add_prefix_spaces(section);
  if (step.use_pattern) split(section, gpt2_pattern(), Split::Behavior::isolated, false);
}

}  // namespace

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Section& section) {
  for (const PreTokenizerStep& step : steps) {
    std::visit([&](const auto& kind) { run(kind, section); }, step);
  }
}

}  // namespace kullback
