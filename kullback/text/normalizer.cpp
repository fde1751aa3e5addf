#include "kullback/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "kullback/text/unicode_form.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_mark(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ME;
}

/// Rewrites character by character: `put(c, out)` appends to `out` what becomes of c.
template <class Put>
TracedText each_character(const TracedText& text, Put put) {
  const std::string& bytes = text.text();
  TracedText out = text.rewritten();
  std::string replacement;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    const ByteRange source{at, at + point.size};
    if (point.valid) {
      replacement.clear();
      put(point.value, replacement);
      out.append(replacement, text, source);
    } else {
      out.append_same(text, source);
    }
    at = source.end;
  }
  return out;
}

template <class Drop>
TracedText without(const TracedText& text, Drop drop) {
  return each_character(text, [&](char32_t c, std::string& out) {
    if (!drop(c)) append_utf8(out, c);
  });
}

TracedText rewrite(const UnicodeForm& step, const TracedText& text) { return in_unicode_form(step, text); }

TracedText rewrite(const Prepend& step, const TracedText& text) {
  if (text.text().empty()) return text;
  TracedText out = text.rewritten();
  out.append(step.text, text, {0, code_point_at(text.text(), 0).size});
  out.append_same(text, {0, text.text().size()});
  return out;
}

/// Runs `use(begin, end)` over the stretches that are well-formed and copies the bytes between.
template <class Use>
void each_valid_stretch(const TracedText& text, TracedText& out, Use use) {
  for (const Piece& piece : Section(text, false).pieces) {
    if (piece.valid)
      use(piece.range);
    else
      out.append_same(text, piece.range);
  }
}

/// What is put in stands for the last character of what it replaces: so the tokenizers library counts.
TracedText rewrite(const Replace& step, const TracedText& text) {
  TracedText out = text.rewritten();
  each_valid_stretch(text, out, [&](ByteRange stretch) {
    const auto bytes = std::string_view(text.text()).substr(stretch.begin, stretch.size());
    std::size_t done = 0;
    for (const ByteRange& match : step.pattern.matches(bytes)) {
      out.append_same(text, {stretch.begin + done, stretch.begin + match.begin});
      std::size_t last = match.end - 1;
      while (last > match.begin && (static_cast<unsigned char>(bytes[last]) & 0xc0) == 0x80) --last;
      out.append(step.content, text, {stretch.begin + last, stretch.begin + match.end});
      done = match.end;
    }
    out.append_same(text, {stretch.begin + done, stretch.end});
  });
  return out;
}

TracedText rewrite(const StripSpace& step, const TracedText& text) {
  std::size_t begin = text.text().size(), end = 0;
  for (std::size_t at = 0; at < text.text().size();) {
    const CodePoint point = code_point_at(text.text(), at);
    if (!point.valid || !is_space(point.value)) {
      begin = std::min(begin, at);
      end = at + point.size;
    }
    at += point.size;
  }
  if (begin >= end) return text.part({0, step.left || step.right ? 0 : text.text().size()});
  return text.part({step.left ? begin : 0, step.right ? end : text.text().size()});
}

TracedText rewrite(const Lowercase&, const TracedText& text) {
  return each_character(text, [](char32_t c, std::string& out) {
    if (c == 0x130) {  // İ, the one capital whose small letter is two code points
      out += "i\xcc\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
}

TracedText rewrite(const StripAccents&, const TracedText& text) { return without(text, is_mark); }

TracedText rewrite(const Nmt&, const TracedText& text) {
  return each_character(text, [](char32_t c, std::string& out) {
    const bool gone = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    const bool blank = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    if (blank)
      out += ' ';
    else if (!gone)
      append_utf8(out, c);
  });
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

/// The blocks that BERT sets apart: CJK ideographs with their extensions A to E and the compatibility ideographs.
bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

TracedText rewrite(const BertNormalizer& step, TracedText text) {
  if (step.clean_text) {
    text = each_character(text, [](char32_t c, std::string& out) {
      if (c == 0 || c == 0xfffd || is_control(c)) return;
      if (is_space(c))
        out += ' ';
      else
        append_utf8(out, c);
    });
  }
  if (step.handle_chinese_chars) {
    text = each_character(text, [](char32_t c, std::string& out) {
      if (is_ideograph(c)) out += ' ';
      append_utf8(out, c);
      if (is_ideograph(c)) out += ' ';
    });
  }
  if (step.strip_accents.value_or(step.lowercase)) {
    text =
        without(in_unicode_form({false, false}, text), [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; });
  }
  return step.lowercase ? rewrite(Lowercase{}, text) : text;
}

std::vector<ByteRange> grapheme_clusters(std::string_view text, ByteRange range) {
  std::vector<ByteRange> clusters;
  utf8proc_int32_t state = 0;
  utf8proc_int32_t before = 0;
  for (std::size_t at = range.begin; at < range.end;) {
    const CodePoint point = code_point_at(text, at);
    const auto value = static_cast<utf8proc_int32_t>(point.value);
    if (clusters.empty() || utf8proc_grapheme_break_stateful(before, value, &state)) clusters.push_back({at, at});
    clusters.back().end = at += point.size;
    before = value;
  }
  return clusters;
}

/// A grapheme cluster of less than six bytes is looked up whole, and what the table does not name of it is dropped; longer
/// ones, and those without a match, go code point by code point. So does sentencepiece in the tokenizers library.
TracedText rewrite(const std::shared_ptr<const Precompiled>& step, const TracedText& text) {
  const std::string_view bytes = text.text();
  TracedText out = text.rewritten();
  each_valid_stretch(text, out, [&](ByteRange stretch) {
    std::vector<TracedText::Changed> characters;
    const auto put = [&](std::string_view replaced, std::string_view source) {
      int surplus = 0;  // characters more than there were
      for (std::size_t at = 0; at < source.size(); at += code_point_at(source, at).size) --surplus;
      const std::size_t first = characters.size();
      for (std::size_t at = 0; at < replaced.size(); ++surplus) {
        const CodePoint point = code_point_at(replaced, at);
        characters.push_back({point.value, 0});
        at += point.size;
      }
      for (std::size_t i = characters.size(); surplus > 0 && i > first; --surplus) characters[--i].change = 1;
      if (surplus < 0 && !characters.empty()) characters.back().change += surplus;
    };
    for (const ByteRange& cluster : grapheme_clusters(bytes, stretch)) {
      const std::string_view whole = bytes.substr(cluster.begin, cluster.size());
      const auto replaced = cluster.size() < 6 ? step->replacement(whole) : std::nullopt;
      if (replaced) {
        put(*replaced, whole);
        continue;
      }
      for (std::size_t at = 0; at < whole.size();) {
        const std::string_view one = whole.substr(at, code_point_at(whole, at).size);
        put(step->replacement(one).value_or(one), one);
        at += one.size();
      }
    }
    out.append(characters, text, stretch);
  });
  return out;
}

}  // namespace

TracedText normalize(const std::vector<NormalizerStep>& steps, TracedText text) {
  for (const NormalizerStep& step : steps) {
    TracedText changed = std::visit([&](const auto& kind) { return rewrite(kind, text); }, step);
    // A text that a step did not change keeps its shorter account of where it came from.
    if (changed.text() != text.text()) text = std::move(changed);
  }
  return text;
}

}  // namespace kullback
