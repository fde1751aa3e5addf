#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "kullback/base/json.h"

namespace kullback {

/// One JSON document. Error with `name`, line and column if the text is not JSON.
Json parse_json(std::string_view text, std::string_view name);
Json read_json(const std::filesystem::path& path);

/// Calls `use(line, row)` for every line of a JSON Lines file, in order; lines count from 1. Blank lines are passed over; a
/// byte order mark and carriage returns are taken for what they are. Error with file and line if a line is not a JSON object.
void read_jsonl(const std::filesystem::path& path, const std::function<void(std::int64_t line, Json row)>& use);

/// Appends rows to a JSON Lines file. Each row reaches the file before append() returns, so that a killed run keeps its log.
class JsonlWriter {
 public:
  explicit JsonlWriter(std::filesystem::path path);
  void append(const Json& row);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace kullback
