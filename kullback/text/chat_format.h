#pragma once

#include <span>
#include <string>
#include <variant>

namespace kullback {

/// One turn of a conversation.
struct Message {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// What the model's tokenizer calls `bos_token` and `eos_token`; "" where it has none.
struct ChatTokens {
  std::string bos, eos;
};

/// When a template writes the opening of the assistant's turn: when asked to, whatever is asked, or never.
enum class Opening { asked, always, never };

/// `<|im_start|>role\n content <|im_end|>\n` for every turn: ChatML, Qwen2, SmolLM2.
struct ChatMl {
  ChatTokens tokens;
  std::string default_system;  ///< written when the conversation does not begin with a system message; empty: none
  bool bos = false;
  bool trim = false;  ///< white space around contents is dropped
  Opening opening = Opening::asked;
};

/// `[INST] … [/INST]`, the system message in `<<SYS>>` in front of the first question: Llama 2.
struct Llama2 {
  ChatTokens tokens;
};

/// `<|start_header_id|>role<|end_header_id|>\n\n content <|eot_id|>`: Llama 3, 3.1, 3.2, 3.3.
struct Llama3 {
  ChatTokens tokens;
  Opening opening = Opening::asked;
  std::string
      date;  ///< 3.1 and later: the system turn is always written and begins with two dates, of which this is "today"
};

/// `[INST] … [/INST]` and the end of text after each answer: Mistral, Mixtral, Ministral, Nemo.
struct Mistral {
  enum class System { none, first, last };  ///< has no place; before the first question; before the last message
  ChatTokens tokens;
  System system = System::none;
  std::string user_before, user_after;            ///< around questions: "[INST] ", " [/INST]"
  std::string assistant_before, assistant_after;  ///< before answers, and after the end of text
  bool trim = false;                              ///< white space around answers is dropped
};

/// `<start_of_turn>role\n content <end_of_turn>\n`: Gemma 1 to 3.
struct Gemma {
  ChatTokens tokens;
  bool system = false;  ///< the system message goes before the first question; else it has no place
};

/// `<|role|>\n content </s>\n`: Zephyr, TinyLlama.
struct Zephyr {
  ChatTokens tokens;
};

/// `<|role|>\n content <|end|>\n`: Phi-3, Phi-3.5.
struct Phi3 {
  ChatTokens tokens;
  bool bos = false;
  bool end_of_text = true;         ///< the end of text is written where no answer is asked for
  bool skip_empty_system = false;  ///< a system message without content is passed over
  bool first_release = false;      ///< the answer is opened behind every question, and system messages are passed over
};

/// `### Instruction:` and `### Response:`: Stanford Alpaca.
struct Alpaca {
  ChatTokens tokens;
};

using ChatFormat = std::variant<ChatMl, Llama2, Llama3, Mistral, Gemma, Zephyr, Phi3, Alpaca>;

/// Writes a conversation of at least one message.
std::string render(const ChatFormat& format, std::span<const Message> messages, bool add_generation_prompt);

/// A Jinja template that renders what the format renders.
std::string jinja_of(const ChatFormat& format);

}  // namespace kullback
