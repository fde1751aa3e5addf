#include "kullback/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "kullback/base/error.h"

namespace kullback {
namespace {

/// What each thread needs to match any pattern: room for one pair of offsets, and a stack for long matches.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr);

  Workspace() { pcre2_jit_stack_assign(context, nullptr, stack); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

constexpr std::string_view white_space =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// PCRE's \s also takes U+180E, which has not been white space since Unicode 6.3: \s and \S are spelt out.
/// \S inside brackets is left to PCRE, since a complement cannot be written there.
std::string with_white_space_spelt_out(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char next = expression[++i];
      if (next == 's') {
        out += in_class ? std::string(white_space) : "[" + std::string(white_space) + "]";
      } else if (next == 'S' && !in_class) {
        out += "[^" + std::string(white_space) + "]";
      } else {
        out += {c, next};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

}  // namespace

Pattern::Pattern(std::string_view expression) : expression_(expression) {
  const std::string translated = with_white_space_spelt_out(expression);
  int code = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                       PCRE2_UTF | PCRE2_UCP, &code, &place, nullptr);
  if (compiled == nullptr) fail("the regular expression \"{}\" is not well-formed: {}", expression, message_of(code));
  compiled_ = std::shared_ptr<void>(compiled, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); });
  pcre2_jit_compile(compiled,
                    PCRE2_JIT_COMPLETE);  // where there is no compiler for this processor, the interpreter runs
}

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  pattern.expression_ = text;
  return pattern;
}

std::vector<ByteRange> Pattern::matches(std::string_view text) const {
  std::vector<ByteRange> found;
  if (is_literal()) {
    if (expression_.empty()) return found;
    for (std::size_t at = text.find(expression_); at != std::string_view::npos; at = text.find(expression_, at)) {
      found.push_back({at, at + expression_.size()});
      at += expression_.size();
    }
    return found;
  }
  static thread_local Workspace workspace;
  const auto* code = static_cast<const pcre2_code*>(compiled_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t at = 0;
  while (at < text.size()) {
    const int count = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, workspace.data,
                                  workspace.context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) fail("the regular expression \"{}\" cannot be matched: {}", expression_, message_of(count));
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(workspace.data);
    found.push_back({offsets[0], offsets[1]});
    at = offsets[1];
  }
  return found;
}

}  // namespace kullback
