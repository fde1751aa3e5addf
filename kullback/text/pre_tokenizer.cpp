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

void run(const Digits& step, Section& section) {
  split_pieces(section, [&](std::string_view text) {
    std::vector<ByteRange> matches;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      const ByteRange range{at, at + point.size};
      if (is_numeric(point.value)) matches.push_back(range);
      at = range.end;
    }
    return arrange(step.individual ? Split::Behavior::isolated : Split::Behavior::contiguous,
                 parts_of(matches, text.size(), false));
  });
}

/// Puts a space before every piece that does not begin with one. It counts as coming from the piece's first character.
void add_prefix_spaces(Section& section) {
  TracedText text;
  std::vector<Piece> pieces;
  for (const Piece& piece : section.pieces) {
    const std::string_view bytes = std::string_view(section.text.text()).substr(piece.range.begin, piece.range.size());
    const CodePoint first = code_point_at(bytes, 0);
    const std::size_t begin = text.text().size();
    if (!bytes.starts_with(' ')) {
      text.append(" ", section.text.origin({piece.range.begin, piece.range.begin + first.size}));
    }
    for (std::size_t i = piece.range.begin; i < piece.range.end; ++i) {
      text.append(std::string_view(section.text.text()).substr(i, 1), section.text.origin({i, i + 1}));
    }
    pieces.push_back({{begin, text.text().size()}, piece.valid});
  }
  section.text = std::move(text);
  section.pieces = std::move(pieces);
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
