#include "kullback/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/text/jinja_outline.h"
#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Json fixture() {
  std::ifstream file(KULLBACK_FIXTURES "/chat_templates.json");
  return Json::parse(file);
}

std::vector<Message> conversation(const Json& turns) {
  std::vector<Message> messages;
  for (const Json& turn : turns)
    messages.push_back({turn["role"].get<std::string>(), turn["content"].get<std::string>()});
  return messages;
}

ChatTokens tokens() { return {"<s>", "</s>"}; }

/// Compares with what Jinja rendered; where Jinja's template raises an error, so must ours.
void expect_same(const ChatTemplate& chat, const Json& all, const Json& one) {
  std::size_t next = 0;
  for (const Json& turns : all["conversations"]) {
    for (const bool prompt : {false, true}) {
      const Json& expected = one["rendered"][next++];
      const std::vector<Message> messages = conversation(turns);
      if (expected.is_null()) {
        EXPECT_THROW(chat.render(messages, prompt), Error) << one["name"] << turns;
      } else {
        EXPECT_EQ(chat.render(messages, prompt), expected.get<std::string>()) << one["name"] << turns;
      }
    }
  }
}

TEST(ChatTemplate, RendersWhatTheModelsOwnJinjaRenders) {
  const Json all = fixture();
  for (const Json& one : all["cases"]) {
    const ChatTemplate chat = ChatTemplate::recognise(one["jinja"].get<std::string>(), "m", tokens());
    EXPECT_EQ(chat.name(), one["format"]) << one["name"];
    EXPECT_EQ(chat.jinja(), one["jinja"]) << "a saved model keeps its own template";
    expect_same(chat, all, one);
  }
}

TEST(ChatTemplate, ForcedByNameBringsAJinjaThatRendersTheSame) {
  const Json all = fixture();
  std::size_t named = 0;
  for (const Json& one : all["cases"]) {
    if (!one.contains("named")) continue;
    const ChatTemplate chat = ChatTemplate::named(one["named"].get<std::string>(), tokens());
    EXPECT_EQ(chat.jinja(), one["jinja"]);
    expect_same(chat, all, one);
    ++named;
  }
  EXPECT_EQ(named, ChatTemplate::names().size());
}

// The one template that this project's own model carries.
TEST(ChatTemplate, KnowsSmolLm2) {
  const ChatTemplate chat = ChatTemplate::named("smollm2");
  const std::vector<Message> messages{{"user", "Hi"}};
  EXPECT_EQ(chat.render(messages, true),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

std::string refusal(const std::string& jinja) {
  try {
    ChatTemplate::recognise(jinja, "model.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, NamesATemplateThatIsNoneOfThem) {
  EXPECT_THAT(
      refusal("{% for m in messages %}{{ '@@' + m.role + m.content }}{% endfor %}"),
      AllOf(StartsWith("model.gguf: its chat template (\"{% for m in messages %}"),
            HasSubstr("none of the built-in ones"), HasSubstr("--chat-template"), HasSubstr("qwen2.5 and smollm2")));
  EXPECT_THAT(refusal(""), HasSubstr("none of the built-in ones"));
}

TEST(ChatTemplate, RefusesAdditionsThatWouldBeLost) {
  const std::string chatml = ChatTemplate::named("chatml").jinja();
  EXPECT_EQ(refusal(chatml), "");
  EXPECT_THAT(refusal("{{ 'Today is Monday.' }}" + chatml), HasSubstr("is like chatml, but with additions"));
  EXPECT_THAT(refusal(chatml + "{{ '<think>' }}"), HasSubstr("--chat-template chatml uses the common form"));
  std::string without_end = chatml;
  without_end.replace(without_end.find("<|im_end|>"), 10, "");
  EXPECT_THAT(refusal(without_end), HasSubstr("with additions"));
  EXPECT_THAT(refusal(ChatTemplate::named("gemma").jinja() + "!"), HasSubstr("is like gemma"));
}

TEST(ChatTemplate, SuggestsANameThatExists) {
  try {
    ChatTemplate::named("chatlm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no chat template \"chatlm\""), HasSubstr("did you mean \"chatml\"?")));
  }
}

TEST(ChatTemplate, RefusesWhatItCannotPlace) {
  const std::vector<Message> tool{{"user", "x"}, {"tool", "y"}};
  for (const std::string& name : ChatTemplate::names()) {
    const ChatTemplate chat = ChatTemplate::named(name, tokens());
    EXPECT_THROW(chat.render(tool, false), Error) << name;
    EXPECT_THROW(chat.render({}, true), Error) << name;
  }
}

// reports.md, kind 8: what training counts must hold the token that ends the turn, and the prompt must be what is used to ask.
TEST(ChatTemplate, ResponseOfEveryFormatEndsItsTurn) {
  const std::map<std::string, std::string> ends{
      {"chatml", "<|im_end|>\n"}, {"qwen2", "<|im_end|>\n"}, {"qwen2.5", "<|im_end|>\n"}, {"smollm2", "<|im_end|>\n"},
      {"llama2", "</s>"},         {"llama3", "<|eot_id|>"},  {"mistral", "</s>"},         {"gemma", "<end_of_turn>\n"},
      {"zephyr", "</s>\n"},       {"phi3", "<|end|>\n</s>"}, {"alpaca", "</s>\n\n"}};
  const std::vector<Message> whole{{"user", "Why?"}, {"assistant", "Because."}};
  for (const std::string& name : ChatTemplate::names()) {
    const ChatTemplate chat = ChatTemplate::named(name, tokens());
    const std::string prompt = chat.render(std::span(whole).first(1), true);
    const std::string all = chat.render(whole, false);
    ASSERT_THAT(all, StartsWith(prompt)) << name;
    EXPECT_THAT(all.substr(prompt.size()), AllOf(HasSubstr("Because."), EndsWith(ends.at(name)))) << name;
  }
}

// reports.md, kind 8: the template writes the beginning, so the tokenizer must not add another.
TEST(ChatTemplate, BeginsOnce) {
  // llama-bpe: models of it want a beginning.
  BpeSpec spec = byte_level_spec("invented", {}, {"<s>", "</s>", "<|eot_id|>"}, "llama-bpe");
  spec.special.bos = 256;
  const Tokenizer tokenizer(spec);
  const std::vector<Message> messages{{"user", "Hi"}};
  for (const char* name : {"llama3", "llama2", "mistral", "gemma", "alpaca"}) {
    const auto ids = tokenizer.encode(ChatTemplate::named(name, tokens()).render(messages, true));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 1) << name;
    EXPECT_EQ(ids.front(), 256) << name;
    EXPECT_EQ(tokenizer.add_special(ids), ids) << name;
  }
  EXPECT_EQ(tokenizer.add_special(tokenizer.encode("plain")).front(), 256);
}

TEST(JinjaOutline, FollowsTheRenderersWhiteSpace) {
  EXPECT_EQ(jinja_outline("a\n  {% if x %}\nb\n  {% endif %}\nc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(jinja_outline("a\n {{- 'b' -}} \n c"), "abc");
  EXPECT_EQ(jinja_outline("a{# never '}} #}\nb"), "ab");
  EXPECT_EQ(jinja_outline("{{ 'it''s' }}"), "{?}");
  EXPECT_EQ(jinja_outline(R"({{ 'a\n\'b\'' ~ "c%}" }})"), "a\n'b'c%}");
  EXPECT_EQ(jinja_outline("{% if tools %}x{% else %}y{% endif %}"), "y");
  EXPECT_EQ(jinja_outline("{% if a %}x{% elif b %}y{% endif %}"), "xy");
}

TEST(JinjaOutline, TakesWhatIsNotClosed) {
  for (const char* text : {"{{", "{%", "{#", "{{ 'a", "{% if", "{{ a + ", "{% endif %}{% else %}{% endfor %}", "{",
                           "{{-", "{{ ( }}", "{{ ']' ) }}"}) {
    EXPECT_NO_THROW(jinja_outline(text)) << text;
  }
}

}  // namespace
}  // namespace kullback
