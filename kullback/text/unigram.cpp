#include "kullback/text/unigram.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

std::unordered_map<std::string, std::int32_t> ids_of(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string, std::int32_t> ids;
  ids.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty()) ids.emplace(tokens[i], static_cast<std::int32_t>(i));
  }
  return ids;
}

std::optional<std::int32_t> found_in(const std::unordered_map<std::string, std::int32_t>& ids, std::string_view token) {
  const auto found = ids.find(std::string(token));
  if (found == ids.end()) return std::nullopt;
  return found->second;
}

}  // namespace

Unigram::Unigram(UnigramModel model, std::string_view name) : model_(std::move(model)), ids_(ids_of(model_.tokens)) {
  if (model_.scores.size() != model_.tokens.size()) {
    fail("{}: {} scores for {} tokens", name, model_.scores.size(), model_.tokens.size());
  }
  if (model_.unknown && (*model_.unknown < 0 || static_cast<std::size_t>(*model_.unknown) >= model_.tokens.size())) {
    fail("{}: the unknown token has the id {}, and the vocabulary has {} tokens", name, *model_.unknown,
         model_.tokens.size());
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = found_in(ids_, fmt::format("<0x{:02X}>", byte)).value_or(-1);
  for (const auto& [token, id] : ids_) pieces_.insert(token, id);
  // Ten below the least probable piece: so sentencepiece does it.
  const auto least = std::min_element(model_.scores.begin(), model_.scores.end());
  unknown_score_ = (least == model_.scores.end() ? 0 : *least) - 10;
}

std::optional<std::int32_t> Unigram::token_id(std::string_view token) const { return found_in(ids_, token); }

void Unigram::push_unknown(std::string_view word, std::size_t begin, std::size_t end,
                           std::vector<TokenSpan>& out) const {
  const auto span = [&](std::int32_t id) {
    out.push_back({id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  };
  const std::string_view text = word.substr(begin, end - begin);
  const bool all_bytes = model_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                           return byte_ids_[static_cast<unsigned char>(c)] >= 0;
                         });
  if (all_bytes) {
    for (const char c : text) span(byte_ids_[static_cast<unsigned char>(c)]);
  } else if (model_.unknown) {
    span(*model_.unknown);
  } else {
    fail("the text \"{}\" cannot be encoded: the vocabulary has no piece for it, and no unknown token",
         with_replacements(text));
  }
}

void Unigram::encode(std::string_view word, std::vector<TokenSpan>& out) const {
  struct Best {
    double score = 0;
    std::int64_t begin = -1;  // of the last piece; -1: nothing ends here
    std::int32_t id = -1;     // -1: unknown
  };
  static thread_local std::vector<Best> best;
  best.assign(word.size() + 1, Best{});
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    if (best[end].begin >= 0 && score <= best[end].score) return;  // of equals the one found first stays
    best[end] = {score, static_cast<std::int64_t>(begin), id};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = code_point_at(word, at).size;
    const double before = best[at].score;
    bool covered = false;
    pieces_.each_at(word, at, [&](std::int32_t id, std::size_t end) {
      offer(at, end, before + model_.scores[static_cast<std::size_t>(id)], id);
      covered = covered || end == at + size;
    });
    if (!covered) offer(at, at + size, before + unknown_score_, -1);
    at += size;
  }
  std::vector<TokenSpan> backwards;
  for (std::size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<std::size_t>(best[end].begin);
    const bool unknown = best[end].id < 0 || (model_.unknown && best[end].id == *model_.unknown);
    const std::int32_t id = unknown ? -1 : best[end].id;
    if (unknown && !backwards.empty() && backwards.back().id < 0)
      backwards.back().begin = static_cast<std::uint32_t>(begin);
    else
      backwards.push_back({id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    end = begin;
  }
  for (auto token = backwards.rbegin(); token != backwards.rend(); ++token) {
    if (token->id >= 0)
      out.push_back(*token);
    else
      push_unknown(word, token->begin, token->end, out);
  }
}

WordPiece::WordPiece(WordPieceModel model, std::string_view name)
    : model_(std::move(model)), ids_(ids_of(model_.tokens)) {
  const auto found = found_in(ids_, model_.unknown);
  if (!found) fail("{}: the unknown token \"{}\" is not in the vocabulary", name, model_.unknown);
  unknown_ = *found;
}

std::optional<std::int32_t> WordPiece::token_id(std::string_view token) const { return found_in(ids_, token); }

void WordPiece::encode(std::string_view word, std::vector<TokenSpan>& out) const {
  const std::size_t first = out.size();
  const auto give_up = [&] {
    out.resize(first);
    out.push_back({unknown_, 0, static_cast<std::uint32_t>(word.size())});
  };
  std::vector<std::size_t> borders{0};  // of the code points
  while (borders.back() < word.size()) borders.push_back(borders.back() + code_point_at(word, borders.back()).size);
  if (borders.size() - 1 > model_.longest_word) return give_up();
  std::string piece;
  for (std::size_t begin = 0; begin + 1 < borders.size();) {
    std::size_t end = borders.size() - 1;
    for (; end > begin; --end) {
      piece = begin == 0 ? "" : model_.continuing_prefix;
      piece += word.substr(borders[begin], borders[end] - borders[begin]);
      const auto found = ids_.find(piece);
      if (found == ids_.end()) continue;
      out.push_back(
          {found->second, static_cast<std::uint32_t>(borders[begin]), static_cast<std::uint32_t>(borders[end])});
      break;
    }
    if (end == begin) return give_up();
    begin = end;
  }
}

}  // namespace kullback
