#include "kullback/io/files.h"
#include "kullback/lm/read.h"

namespace kullback {

std::optional<Tokenizer> read_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json", config = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return Tokenizer::from_json(read_text(path), std::filesystem::exists(config) ? read_text(config) : "", path.string());
}

}  // namespace kullback
