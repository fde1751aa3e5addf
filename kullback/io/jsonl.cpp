#include "kullback/io/jsonl.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/io/files.h"

namespace kullback {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

/// What the parser says, without its own prefix ("[json.exception…] parse error at line 1, column 5: …").
std::string reason(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto parse = text.find("parse error");
  const auto colon = parse == std::string::npos ? std::string::npos : text.find(": ", parse);
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// The parser's position counts bytes from 1 and is one beyond the offending byte.
std::int64_t column_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position == 0 ? 0 : position - 1, text.size()));
  const auto newline = before.rfind('\n');
  return static_cast<std::int64_t>(newline == std::string_view::npos ? before.size() : before.size() - newline - 1) + 1;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view name) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto end =
        text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte == 0 ? 0 : error.byte - 1, text.size()));
    const auto line = std::count(text.begin(), end, '\n') + 1;
    fail("{}: line {}, column {}: not JSON: {}", name, line, column_of(text, error.byte), reason(error));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    fail("{}: not JSON: {}", name, reason(error));
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_text(path), path.string()); }

void read_jsonl(const std::filesystem::path& path, const std::function<void(std::int64_t line, Json row)>& use) {
  if (std::filesystem::is_directory(path)) fail("{}: is a directory, not a file", path.string());
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: {}", path.string(), errno == ENOENT ? "no such file" : std::strerror(errno));
  std::string text;
  for (std::int64_t line = 1; std::getline(file, text); ++line) {
    std::string_view row = text;
    if (line == 1 && row.starts_with(byte_order_mark)) row.remove_prefix(byte_order_mark.size());
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Json parsed;
    try {
      parsed = Json::parse(row);
    } catch (const nlohmann::json::parse_error& error) {
      fail("{}: line {}, column {}: not JSON: {}", path.string(), line, column_of(row, error.byte), reason(error));
    } catch (const nlohmann::json::exception& error) {
      fail("{}: line {}: not JSON: {}", path.string(), line, reason(error));
    }
    if (!parsed.is_object())
      fail("{}: line {}: not a JSON object but of type {}", path.string(), line, parsed.type_name());
    use(line, std::move(parsed));
  }
  if (file.bad()) fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
}

JsonlWriter::JsonlWriter(std::filesystem::path path)
    : path_(std::move(path)), file_(path_, std::ios::app | std::ios::binary) {
  if (!file_) fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

void JsonlWriter::append(const Json& row) {
  // Invalid UTF-8 in a logged text must not stop a run.
  file_ << row.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  if (!file_) fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

}  // namespace kullback
