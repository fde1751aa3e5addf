#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/text/chat_format.h"

namespace kullback {

/// How a model wants a conversation written: one of the common formats, with the details of the model's own Jinja template.
/// A value, cheap enough to copy.
class ChatTemplate {
 public:
  /// The built-in rendering that gives what this template gives. `name` stands in messages. Error if it is none of them,
  /// or one with additions that could change what is written.
  static ChatTemplate recognise(std::string_view jinja, std::string_view name, const ChatTokens& tokens = {});
  /// Whatever the model says (`--chat-template NAME`). Error with the known names.
  static ChatTemplate named(std::string_view name, const ChatTokens& tokens = {});
  static std::vector<std::string> names();

  /// Text for the tokenizer, which must add nothing: a beginning that the model needs is in it. With `add_generation_prompt`
  /// it ends where the answer begins. Error if the format has no place for a message: an unknown role, turns that do not
  /// alternate where they must, a system message where there is none, no message at all.
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  const std::string& name() const { return name_; }
  /// The model's own template, or one of ours that renders the same.
  const std::string& jinja() const { return jinja_; }

 private:
  std::string name_, jinja_;
  ChatFormat format_;
};

}  // namespace kullback
