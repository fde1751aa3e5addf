#include "kullback/text/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/text/jinja_outline.h"

namespace kullback {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The outline of a template, from which a format takes the pieces that it knows. What is left over is an addition that the
/// format would not write.
class Outline {
 public:
  explicit Outline(std::string text) : text_(std::move(text)) {}

  bool has(std::string_view piece) const { return contains(text_, piece); }
  bool take(std::string_view piece) {
    bool found = false;
    for (auto at = text_.find(piece); at != std::string::npos; at = text_.find(piece, at)) {
      text_.replace(at, piece.size(), 1, '\0');  // a mark, so that what stood on both sides does not join
      found = true;
    }
    return found;
  }
  /// What stands between the first `before` and the `after` behind it, both taken as well.
  std::optional<std::string> take_between(std::string_view before, std::string_view after) {
    const auto begin = text_.find(before);
    if (begin == std::string::npos) return std::nullopt;
    const auto inner = begin + before.size();
    const auto end = text_.find(after, inner);
    if (end == std::string::npos) return std::nullopt;
    std::string between = text_.substr(inner, end - inner);
    text_.replace(begin, end + after.size() - begin, 1, '\0');
    return between;
  }
  bool nothing_left() const { return text_.find_first_not_of(std::string_view(" \t\n\0", 4)) == std::string::npos; }

 private:
  std::string text_;
};

using Recognised = std::optional<ChatFormat>;  // none: the marks of the format are there, but something else is as well

Opening opening_of(std::string_view jinja, bool written) {
  if (!written) return Opening::never;
  return contains(jinja, "add_generation_prompt") ? Opening::asked : Opening::always;
}

Recognised chatml(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  ChatMl format;
  format.tokens = tokens;
  format.bos = outline.take("{bos}");
  const bool plain = outline.take("<|im_start|>{role}\n{content}<|im_end|>\n");
  format.trim = !plain && outline.take("<|im_start|>{role}\n{content|trim}<|im_end|>\n");
  format.opening = opening_of(jinja, outline.take("<|im_start|>assistant\n"));
  outline.take("<|im_start|>system\n{system}<|im_end|>\n");
  if (const auto system = outline.take_between("<|im_start|>system\n", "<|im_end|>\n")) format.default_system = *system;
  outline.take("<|im_start|>{role}\n{content}");  // Qwen2.5 writes answers with tool calls apart
  outline.take("<|im_end|>\n");
  if (contains(format.default_system, "{") || !outline.nothing_left()) return std::nullopt;
  return plain || format.trim ? Recognised(format) : std::nullopt;
}

Recognised llama2(std::string_view, Outline outline, const ChatTokens& tokens) {
  const bool system = outline.take("<<SYS>>\n{system}\n<</SYS>>\n\n{content}");
  const bool user = outline.take("{bos}[INST] {content|trim} [/INST]");
  const bool assistant = outline.take(" {content|trim} {eos}");
  return system && user && assistant && outline.nothing_left() ? Recognised(Llama2{tokens}) : std::nullopt;
}

Recognised llama3(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  Llama3 format{tokens, Opening::asked, ""};
  const bool turn = outline.take("<|start_header_id|>{role}<|end_header_id|>\n\n{content|trim}<|eot_id|>");
  format.opening = opening_of(jinja, outline.take("<|start_header_id|>assistant<|end_header_id|>\n\n"));
  // Where the template asks for today's date, the one that it names for want of a clock: a run must not depend on its day.
  if (outline.take("Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n")) format.date = "26 Jul 2024";
  outline.take("<|start_header_id|>system<|end_header_id|>\n\n");
  outline.take("{system}");
  outline.take("<|eot_id|>");
  const bool bos = outline.take("{bos}");
  outline.take("{content}");
  return turn && bos && outline.nothing_left() ? Recognised(format) : std::nullopt;
}

/// Blanks at the end or the beginning of a text.
std::string blanks_at_end(std::string_view text) { return std::string(text.substr(text.find_last_not_of(' ') + 1)); }
std::string blanks_at_begin(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find_first_not_of(' '), text.size())));
}

Recognised mistral(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  const std::string text = jinja_outline(jinja);
  const auto open = text.find("[INST]");
  const auto close = text.find("[/INST]");
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  Mistral format;
  format.tokens = tokens;
  format.user_before = blanks_at_end(std::string_view(text).substr(0, open)) + "[INST]" +
                       blanks_at_begin(std::string_view(text).substr(open + 6));
  format.user_after = blanks_at_end(std::string_view(text).substr(0, close)) + "[/INST]";
  const bool last = outline.take("{last}");
  const bool with_system = outline.take(format.user_before + "{system}\n\n{content}" + format.user_after);
  if (with_system) format.system = last ? Mistral::System::last : Mistral::System::first;
  const bool user = outline.take(format.user_before + "{content}" + format.user_after);
  bool assistant = false;
  for (const char* before : {" ", ""}) {
    for (const char* after : {" ", ""}) {
      for (const bool trim : {true, false}) {
        if (assistant || !outline.take(std::string(before) + (trim ? "{content|trim}" : "{content}") + "{eos}" + after))
          continue;
        assistant = true;
        format.assistant_before = before;
        format.assistant_after = after;
        format.trim = trim;
      }
    }
  }
  const bool bos = outline.take("{bos}");
  return user && assistant && bos && outline.nothing_left() ? Recognised(format) : std::nullopt;
}

Recognised gemma(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  Gemma format{tokens, false};
  format.system = outline.take("<start_of_turn>{role}\n{system}{content|trim}<end_of_turn>\n");
  const bool turn = format.system || outline.take("<start_of_turn>{role}\n{content|trim}<end_of_turn>\n");
  const bool bos = outline.take("{bos}");
  const bool opening = opening_of(jinja, outline.take("<start_of_turn>model\n")) == Opening::asked;
  if (format.system) outline.take("{system}\n\n");
  return turn && bos && opening && outline.nothing_left() ? Recognised(format) : std::nullopt;
}

Recognised zephyr(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  outline.take("{last}");  // the answer is opened behind the last message, inside the loop
  const bool user = outline.take("<|user|>\n{content}{eos}\n");
  const bool assistant = outline.take("<|assistant|>\n{content}{eos}\n");
  const bool system = outline.take("<|system|>\n{content}{eos}\n");
  const bool opening = opening_of(jinja, outline.take("<|assistant|>\n")) == Opening::asked;
  return user && assistant && system && opening && outline.nothing_left() ? Recognised(Zephyr{tokens}) : std::nullopt;
}

Recognised phi3(std::string_view jinja, Outline outline, const ChatTokens& tokens) {
  Phi3 format;
  format.tokens = tokens;
  format.bos = outline.take("{bos}");
  format.first_release = !outline.has("<|system|>") && !contains(jinja, "add_generation_prompt");
  if (format.first_release) {
    const bool turns =
        outline.take("<|user|>\n{content}<|end|>\n<|assistant|>\n") && outline.take("{content}<|end|>\n");
    return turns && outline.nothing_left() ? Recognised(format) : std::nullopt;
  }
  format.skip_empty_system = contains(jinja, "'system' and message['content']");
  const bool user = outline.take("<|user|>\n{content}<|end|>\n");
  const bool assistant = outline.take("<|assistant|>\n{content}<|end|>\n");
  const bool system = outline.take("<|system|>\n{content}<|end|>\n");
  const bool opening = opening_of(jinja, outline.take("<|assistant|>\n")) == Opening::asked;
  format.end_of_text = outline.take("{eos}");
  return user && assistant && system && opening && outline.nothing_left() ? Recognised(format) : std::nullopt;
}

Recognised alpaca(std::string_view jinja, Outline, const ChatTokens& tokens) {
  return jinja == jinja_of(Alpaca{}) ? Recognised(Alpaca{tokens}) : std::nullopt;
}

struct Family {
  const char* name;
  const char* mark;  ///< what only templates of this family have in them
  Recognised (*read)(std::string_view, Outline, const ChatTokens&);
  ChatFormat (*common)(const ChatTokens&);  ///< its most common form, for those who force it
};

// The order matters where one family's mark may stand in another's template: Llama 2 before Mistral, Phi-3 before Zephyr.
constexpr std::array families{
    Family{"chatml", "<|im_start|>", chatml, [](const ChatTokens&) -> ChatFormat { return ChatMl{}; }},
    Family{"llama3", "<|start_header_id|>", llama3,
           [](const ChatTokens& t) -> ChatFormat {
             return Llama3{t, Opening::asked, ""};
           }},
    Family{"llama2", "<<SYS>>", llama2, [](const ChatTokens& t) -> ChatFormat { return Llama2{t}; }},
    Family{"mistral", "[INST]", mistral,
           [](const ChatTokens& t) -> ChatFormat {
             return Mistral{t, Mistral::System::first, "[INST] ", " [/INST]", " ", "", false};
           }},
    Family{"gemma", "<start_of_turn>", gemma,
           [](const ChatTokens& t) -> ChatFormat {
             return Gemma{t, true};
           }},
    Family{"phi3", "<|end|>", phi3, [](const ChatTokens& t) -> ChatFormat { return Phi3{t}; }},
    Family{"zephyr", "<|user|>", zephyr, [](const ChatTokens& t) -> ChatFormat { return Zephyr{t}; }},
    Family{"alpaca", "### Instruction:", alpaca, [](const ChatTokens& t) -> ChatFormat { return Alpaca{t}; }},
    Family{"qwen2", nullptr, nullptr,
           [](const ChatTokens&) -> ChatFormat {
             return ChatMl{{}, "You are a helpful assistant."};
           }},
    Family{"qwen2.5", nullptr, nullptr,
           [](const ChatTokens&) -> ChatFormat {
             return ChatMl{{}, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."};
           }},
    Family{"smollm2", nullptr, nullptr,
           [](const ChatTokens&) -> ChatFormat {
             return ChatMl{{}, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"};
           }},
};

/// The beginning of a template, on one line, so that a message can name it.
std::string beginning(std::string_view jinja) {
  std::string text(jinja.substr(0, 60));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, ' ');
  return text + (jinja.size() > 60 ? "…" : "");
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view jinja, std::string_view name, const ChatTokens& tokens) {
  for (const Family& family : families) {
    if (family.mark == nullptr || !contains(jinja, family.mark)) continue;
    Recognised format = family.read(jinja, Outline(jinja_outline(jinja)), tokens);
    if (!format) {
      fail(
          "{}: its chat template (\"{}\") is like {}, but with additions that Kullback does not render; "
          "--chat-template {} uses the common form all the same",
          name, beginning(jinja), family.name, family.name);
    }
    ChatTemplate out;
    out.name_ = family.name;
    out.jinja_ = jinja;
    out.format_ = std::move(*format);
    return out;
  }
  fail("{}: its chat template (\"{}\") is none of the built-in ones; choose one with --chat-template: {}", name,
       beginning(jinja), listing(names()));
}

ChatTemplate ChatTemplate::named(std::string_view name, const ChatTokens& tokens) {
  for (const Family& family : families) {
    if (family.name != name) continue;
    ChatTemplate out;
    out.name_ = name;
    out.format_ = family.common(tokens);
    out.jinja_ = jinja_of(out.format_);
    return out;
  }
  fail("no chat template \"{}\"{}; there are {}", name, suggestion(name, names()), listing(names()));
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const Family& family : families) all.emplace_back(family.name);
  return all;
}

std::string ChatTemplate::render(std::span<const Message> messages, bool add_generation_prompt) const {
  if (messages.empty()) fail("a conversation without messages cannot be rendered");
  return kullback::render(format_, messages, add_generation_prompt);
}

}  // namespace kullback
