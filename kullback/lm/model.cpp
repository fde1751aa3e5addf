#include "kullback/lm/model.h"

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/io/pull.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

ChatTokens chat_tokens(const std::optional<Tokenizer>& tokenizer) {
  const auto spelling = [&](std::optional<int32_t> id) { return id ? tokenizer->token_bytes(*id) : std::string(); };
  return tokenizer ? ChatTokens{spelling(tokenizer->bos()), spelling(tokenizer->eos())} : ChatTokens{};
}

}  // namespace

const Tokenizer& Model::text() const {
  if (!tokenizer) fail("{}: the model carries no tokenizer", name);
  return *tokenizer;
}

const ChatTemplate& Model::chat_template() const {
  if (chat) return *chat;
  if (jinja.empty()) fail("{}: the model carries no chat template; name one with --chat-template", name);
  ChatTemplate::recognise(jinja, name, chat_tokens(tokenizer));  // says why it could not be recognised
  throw std::logic_error("a chat template was recognised on the second try only");
}

void set_chat_template(Model& model, const std::string& jinja) {
  model.jinja = jinja;
  model.chat.reset();
  if (jinja.empty()) return;
  try {
    model.chat = ChatTemplate::recognise(jinja, model.name, chat_tokens(model.tokenizer));
  } catch (const Error&) {
    // A model can be used without its template; Model::chat_template() tells the reason when it is asked for.
  }
}

std::filesystem::path resolve_model(const std::string& name_or_path) {
  if (name_or_path.empty()) fail("no model is named");
  std::vector<std::string> names;
  for (const PullableModel& pullable : pullable_models()) {
    names.push_back(pullable.name);
    if (name_or_path != pullable.name) continue;
    const std::filesystem::path file = pulled_file(pullable);
    if (!std::filesystem::exists(file))
      fail("model '{0}' is not on this machine yet: run `kullback pull {0}`", name_or_path);
    return file;
  }
  std::error_code ignored;
  if (std::filesystem::exists(name_or_path, ignored)) return name_or_path;
  fail("there is no model '{}': neither a file or folder nor a known name{}", name_or_path,
       suggestion(name_or_path, names));
}

Model load_model(const std::string& name_or_path, at::ScalarType dtype, WeightType kept) {
  const std::filesystem::path path = resolve_model(name_or_path);
  Model model = std::filesystem::is_directory(path) ? read_folder(path, dtype, /*with_weights=*/true, kept)
                                                    : read_gguf(path, dtype, /*with_weights=*/true, kept);
  model.name = name_or_path;
  return model;
}

}  // namespace kullback
