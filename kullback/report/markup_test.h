#pragma once

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// A small checker of HTML and SVG: elements nested and closed, attributes quoted and not repeated, entities known, no
// raw markup in text, valid UTF-8 without control characters.
namespace kullback {

inline std::string utf8_fault(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) return "control character at byte " + std::to_string(i);
    const std::size_t size = c < 0x80                ? 1
                             : c >= 0xC2 && c < 0xE0 ? 2
                             : c >= 0xE0 && c < 0xF0 ? 3
                             : c >= 0xF0 && c < 0xF5 ? 4
                                                     : 0;
    if (size == 0 || i + size > text.size()) return "invalid UTF-8 at byte " + std::to_string(i);
    for (std::size_t j = 1; j < size; ++j) {
      if ((static_cast<unsigned char>(text[i + j]) & 0xC0) != 0x80) return "invalid UTF-8 at byte " + std::to_string(i);
    }
    i += size;
  }
  return "";
}

class MarkupChecker {
 public:
  explicit MarkupChecker(std::string_view text) : text_(text) {}

  /// "" or the first fault.
  std::string fault() {
    if (const std::string fault = utf8_fault(text_); !fault.empty()) return fault;
    if (text_.starts_with("<!DOCTYPE html>")) at_ = 15;
    while (at_ < text_.size()) {
      const std::string problem = text_[at_] == '<' ? tag() : character();
      if (!problem.empty())
        return problem + " at byte " + std::to_string(at_) + ": " + std::string(text_.substr(at_, 60));
    }
    return open_.empty() ? "" : "not closed: " + open_.back();
  }

 private:
  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-' || text_[at_] == ':'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string character() {
    if (text_[at_] == '>') return "stray >";
    if (text_[at_] == '&') {
      const std::string_view entity = text_.substr(at_, text_.substr(at_).find(';') + 1);
      static const std::set<std::string_view> known{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
      if (!known.contains(entity)) return "unknown entity";
    }
    ++at_;
    return "";
  }

  std::string tag() {
    ++at_;
    const bool closing = text_[at_] == '/';
    if (closing) ++at_;
    const std::string element = name();
    if (element.empty()) return "no element's name";
    if (closing) {
      if (open_.empty() || open_.back() != element) return "wrong end of " + element;
      open_.pop_back();
      if (text_[at_] != '>') return "bad end tag";
      ++at_;
      return "";
    }
    std::set<std::string> seen;
    while (at_ < text_.size() && text_[at_] != '>' && text_[at_] != '/') {
      if (text_[at_] != ' ') return "no blank before an attribute";
      ++at_;
      const std::string attribute = name();
      if (attribute.empty()) return "no attribute's name";
      if (!seen.insert(attribute).second) return "repeated attribute " + attribute;
      if (text_[at_] != '=') continue;  // as in <button hidden>
      if (text_[at_ + 1] != '"') return "attribute without quotes";
      for (at_ += 2; at_ < text_.size() && text_[at_] != '"';) {
        if (text_[at_] == '<') return "< in an attribute";
        if (text_[at_] == '&') {
          const std::string problem = character();
          if (!problem.empty()) return problem;
        } else {
          ++at_;
        }
      }
      ++at_;
    }
    const bool empty = text_[at_] == '/';
    if (empty) ++at_;
    if (at_ >= text_.size() || text_[at_] != '>') return "tag without end";
    ++at_;
    static const std::set<std::string> void_elements{"meta", "link"};
    if (empty || void_elements.contains(element)) return "";
    if (element == "script" || element == "style") {
      at_ = text_.find("</" + element, at_);
      if (at_ == std::string_view::npos) return "script or style without end";
    }
    open_.push_back(element);
    return "";
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
};

inline std::string markup_fault(std::string_view text) { return MarkupChecker(text).fault(); }

}  // namespace kullback
