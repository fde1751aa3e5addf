// Our own Jinja texts of the formats, for models that are saved with a format that they did not bring along.
#include <string_view>

#include "kullback/text/chat_format.h"

namespace kullback {
namespace {

/// The text as the inside of a Jinja literal in single quotes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\'' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  return out;
}

std::string quoted_literal(std::string_view text) { return "'" + escaped(text) + "'"; }

std::string opening(Opening when, std::string_view text) {
  if (when == Opening::never) return "";
  const std::string put = "{{ " + quoted_literal(text) + " }}";
  return when == Opening::always ? put : "{% if add_generation_prompt %}" + put + "{% endif %}";
}

constexpr auto split_system =
    "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% set turns = "
    "messages[1:] %}"
    "{% else %}{% set system_message = none %}{% set turns = messages %}{% endif %}";
constexpr auto no_system =
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no place for a system message') }}{% endif %}"
    "{% set turns = messages %}";
constexpr auto alternate =
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant must take turns') }}{% endif %}";

std::string write(const ChatMl& f) {
  std::string out = f.bos ? "{{ bos_token }}" : "";
  out += "{% for message in messages %}";
  if (!f.default_system.empty()) {
    out += "{% if loop.first and messages[0]['role'] != 'system' %}{{ " +
           quoted_literal("<|im_start|>system\n" + f.default_system + "<|im_end|>\n") + " }}{% endif %}";
  }
  const std::string content = f.trim ? "(message['content'] | trim)" : "message['content']";
  out += "{{ '<|im_start|>' + message['role'] + '\\n' + " + content + " + '<|im_end|>\\n' }}{% endfor %}";
  return out + opening(f.opening, "<|im_start|>assistant\n");
}

std::string write(const Llama2&) {
  return std::string(split_system) + "{% for message in turns %}" + alternate +
         "{% if loop.first and system_message is not none %}"
         "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
         "{% else %}{% set content = message['content'] %}{% endif %}"
         "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
         "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";
}

std::string write(const Llama3& f) {
  std::string out = "{{ bos_token }}";
  if (f.date.empty()) {
    out += "{% set turns = messages %}";
  } else {
    out += std::string(split_system) +
           "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: " +
           escaped(f.date) +
           "\\n\\n' }}{% if system_message is not none %}{{ system_message | trim }}{% endif %}{{ '<|eot_id|>' }}";
  }
  out +=
      "{% for message in turns %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
      "(message['content'] | trim) + '<|eot_id|>' }}{% endfor %}";
  return out + opening(f.opening, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

std::string write(const Mistral& f) {
  const bool has_system = f.system != Mistral::System::none;
  std::string out =
      std::string(has_system ? split_system : no_system) + "{{ bos_token }}{% for message in turns %}" + alternate;
  const std::string before = quoted_literal(f.user_before) + " + ";
  const std::string question = "message['content'] + " + quoted_literal(f.user_after);
  out += "{% if message['role'] == 'user' %}";
  if (has_system) {
    out += std::string("{% if loop.") + (f.system == Mistral::System::first ? "first" : "last") +
           " and system_message is not none %}{{ " + before + "system_message + '\\n\\n' + " + question +
           " }}{% else %}{{ " + before + question + " }}{% endif %}";
  } else {
    out += "{{ " + before + question + " }}";
  }
  out += "{% else %}{{ " + quoted_literal(f.assistant_before) + " + " +
         (f.trim ? "(message['content'] | trim)" : "message['content']") + " + eos_token + " +
         quoted_literal(f.assistant_after) + " }}{% endif %}{% endfor %}";
  return out;
}

std::string write(const Gemma& f) {
  constexpr auto prefix =
      "{% if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}"
      "{% set turns = messages[1:] %}{% else %}{% set first_user_prefix = '' %}{% set turns = messages %}{% endif %}";
  return "{{ bos_token }}" + std::string(f.system ? prefix : no_system) + "{% for message in turns %}" + alternate +
         "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n'" +
         (f.system ? " + (first_user_prefix if loop.first else '')" : "") +
         " }}{{ (message['content'] | trim) + '<end_of_turn>\\n' }}{% endfor %}" +
         opening(Opening::asked, "<start_of_turn>model\n");
}

/// One branch a role, `end` being what follows the content.
std::string three_roles(const std::string& system_condition, const std::string& end) {
  const auto put = [&](const std::string& role) {
    return "{{ '<|" + role + "|>\\n' + message['content'] + " + end + " }}";
  };
  return "{% if " + system_condition + " %}" + put("system") + "{% elif message['role'] == 'user' %}" + put("user") +
         "{% elif message['role'] == 'assistant' %}" + put("assistant") + "{% endif %}";
}

std::string write(const Zephyr&) {
  return "{% for message in messages %}" + three_roles("message['role'] == 'system'", "eos_token + '\\n'") +
         "{% endfor %}" + opening(Opening::asked, "<|assistant|>\n");
}

std::string write(const Phi3& f) {
  std::string out = f.bos ? "{{ bos_token }}" : "";
  if (f.first_release) {
    return out +
           "{% for message in messages %}{% if message['role'] == 'user' %}"
           "{{ '<|user|>\\n' + message['content'] + '<|end|>\\n<|assistant|>\\n' }}"
           "{% elif message['role'] == 'assistant' %}{{ message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}";
  }
  const std::string system =
      f.skip_empty_system ? "message['role'] == 'system' and message['content']" : "message['role'] == 'system'";
  out += "{% for message in messages %}" + three_roles(system, "'<|end|>\\n'") +
         "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}";
  return out + (f.end_of_text ? "{% else %}{{ eos_token }}{% endif %}" : "{% endif %}");
}

std::string write(const Alpaca&) {
  return std::string(split_system) +
         "{{ bos_token }}{% if system_message is not none %}{{ system_message }}{% else %}{{ 'Below is an instruction "
         "that "
         "describes a task. Write a response that appropriately completes the request.' }}{% endif %}{{ '\\n\\n' }}"
         "{% for message in turns %}" +
         alternate +
         "{% if message['role'] == 'user' %}{{ '### Instruction:\\n' + message['content'] + '\\n\\n' }}"
         "{% else %}{{ '### Response:\\n' + message['content'] + eos_token + '\\n\\n' }}{% endif %}{% endfor %}" +
         opening(Opening::asked, "### Response:\n");
}

}  // namespace

std::string jinja_of(const ChatFormat& format) {
  return std::visit([](const auto& kind) { return write(kind); }, format);
}

}  // namespace kullback
