#include "kullback/text/chat_format.h"

#include <algorithm>
#include <string_view>

#include "kullback/base/error.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

/// As Jinja's trim and Python's str.strip(): white space of Unicode, and the four separators of ASCII.
std::string trimmed(std::string_view text) {
  std::size_t begin = text.size();
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool blank = c.valid && (is_space(c.value) || (c.value >= 0x1c && c.value <= 0x1f));
    if (!blank) {
      begin = std::min(begin, at);
      end = at + c.size;
    }
    at += c.size;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : "";
}

[[noreturn]] void unknown_role(const Message& message) {
  fail("a message has the role \"{}\", and the chat template knows system, user and assistant", message.role);
}

void check_role(const Message& message) {
  if (message.role != "system" && message.role != "user" && message.role != "assistant") unknown_role(message);
}

bool begins_with_system(std::span<const Message> messages) { return messages[0].role == "system"; }

/// After an optional system message: user, assistant, user, …
void check_turns(std::span<const Message> turns) {
  for (std::size_t i = 0; i < turns.size(); ++i) {
    check_role(turns[i]);
    const char* wanted = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != wanted) {
      fail("turn {} is the {}'s, and the chat template wants user and assistant in turn, beginning with the user",
           i + 1, turns[i].role);
    }
  }
}

std::string opened(Opening opening, bool asked, const char* text) {
  return opening == Opening::always || (opening == Opening::asked && asked) ? text : "";
}

std::string write(const ChatMl& f, std::span<const Message> messages, bool asked) {
  std::string out = f.bos ? f.tokens.bos : "";
  if (!f.default_system.empty() && !begins_with_system(messages)) {
    out += "<|im_start|>system\n" + f.default_system + "<|im_end|>\n";
  }
  for (const Message& m : messages) {
    check_role(m);
    out += "<|im_start|>" + m.role + "\n" + (f.trim ? trimmed(m.content) : m.content) + "<|im_end|>\n";
  }
  return out + opened(f.opening, asked, "<|im_start|>assistant\n");
}

std::string write(const Llama2& f, std::span<const Message> messages, bool) {
  const bool system = begins_with_system(messages);
  const auto turns = messages.subspan(system ? 1 : 0);
  check_turns(turns);
  std::string out;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    std::string content = turns[i].content;
    if (i == 0 && system) content = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + content;
    out += turns[i].role == "user" ? f.tokens.bos + "[INST] " + trimmed(content) + " [/INST]"
                                   : " " + trimmed(content) + " " + f.tokens.eos;
  }
  return out;
}

std::string write(const Llama3& f, std::span<const Message> messages, bool asked) {
  const auto turn = [](const std::string& role, const std::string& content) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n" + content + "<|eot_id|>";
  };
  std::string out = f.tokens.bos;
  if (!f.date.empty()) {
    const bool system = begins_with_system(messages);
    out += turn("system", "Cutting Knowledge Date: December 2023\nToday Date: " + f.date + "\n\n" +
                              (system ? trimmed(messages[0].content) : ""));
    messages = messages.subspan(system ? 1 : 0);
  }
  for (const Message& m : messages) {
    check_role(m);
    out += turn(m.role, trimmed(m.content));
  }
  return out + opened(f.opening, asked, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

std::string write(const Mistral& f, std::span<const Message> messages, bool) {
  const bool system = begins_with_system(messages);
  if (system && f.system == Mistral::System::none) fail("the chat template has no place for a system message");
  const auto turns = messages.subspan(system ? 1 : 0);
  check_turns(turns);
  std::string out = f.tokens.bos;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Message& m = turns[i];
    if (m.role == "assistant") {
      out += f.assistant_before + (f.trim ? trimmed(m.content) : m.content) + f.tokens.eos + f.assistant_after;
      continue;
    }
    const bool with_system = system && i == (f.system == Mistral::System::first ? 0 : turns.size() - 1);
    out += f.user_before + (with_system ? messages[0].content + "\n\n" : "") + m.content + f.user_after;
  }
  return out;
}

std::string write(const Gemma& f, std::span<const Message> messages, bool asked) {
  const bool system = begins_with_system(messages);
  if (system && !f.system) fail("the chat template has no place for a system message");
  const auto turns = messages.subspan(system ? 1 : 0);
  check_turns(turns);
  std::string out = f.tokens.bos;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    out += turns[i].role == "assistant" ? "<start_of_turn>model\n" : "<start_of_turn>user\n";
    if (i == 0 && system) out += messages[0].content + "\n\n";
    out += trimmed(turns[i].content) + "<end_of_turn>\n";
  }
  return out + opened(Opening::asked, asked, "<start_of_turn>model\n");
}

std::string write(const Zephyr& f, std::span<const Message> messages, bool asked) {
  std::string out;
  for (const Message& m : messages) {
    check_role(m);
    out += "<|" + m.role + "|>\n" + m.content + f.tokens.eos + "\n";
  }
  return out + opened(Opening::asked, asked, "<|assistant|>\n");
}

std::string write(const Phi3& f, std::span<const Message> messages, bool asked) {
  std::string out = f.bos ? f.tokens.bos : "";
  for (const Message& m : messages) {
    check_role(m);
    if (m.role == "system" && m.content.empty() && f.skip_empty_system) continue;
    if (!f.first_release) {
      out += "<|" + m.role + "|>\n" + m.content + "<|end|>\n";
    } else if (m.role == "user") {
      out += "<|user|>\n" + m.content + "<|end|>\n<|assistant|>\n";
    } else if (m.role == "assistant") {
      out += m.content + "<|end|>\n";
    }
  }
  if (f.first_release) return out;
  return out + (asked ? "<|assistant|>\n" : f.end_of_text ? f.tokens.eos : "");
}

std::string write(const Alpaca& f, std::span<const Message> messages, bool asked) {
  constexpr auto preamble =
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.";
  const bool system = begins_with_system(messages);
  const auto turns = messages.subspan(system ? 1 : 0);
  check_turns(turns);
  std::string out = f.tokens.bos + (system ? messages[0].content : preamble) + "\n\n";
  for (const Message& m : turns) {
    out += m.role == "user" ? "### Instruction:\n" + m.content + "\n\n"
                            : "### Response:\n" + m.content + f.tokens.eos + "\n\n";
  }
  return out + opened(Opening::asked, asked, "### Response:\n");
}

}  // namespace

std::string render(const ChatFormat& format, std::span<const Message> messages, bool add_generation_prompt) {
  return std::visit([&](const auto& kind) { return write(kind, messages, add_generation_prompt); }, format);
}

}  // namespace kullback
