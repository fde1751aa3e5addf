#include "kullback/text/bpe.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <queue>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/text/byte_alphabet.h"
#include "kullback/text/utf8.h"

namespace kullback {

/// Pair of ids -> rank and merged id, by open addressing: this look-up is most of the work of encoding.
class Bpe::MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };

  explicit MergeTable(std::size_t merges) {
    std::size_t size = 16;
    while (size < 2 * merges) size *= 2;
    slots_.resize(size);
  }

  void insert(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[place(key(left, right))];
    slot = {key(left, right), merge};
  }

  const Merge* find(std::int32_t left, std::int32_t right) const {
    const Slot& slot = slots_[place(key(left, right))];
    return slot.key == empty ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max();
  struct Slot {
    std::uint64_t key = empty;
    Merge merge{0, 0};
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  std::size_t place(std::uint64_t wanted) const {
    std::size_t at = (wanted * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
    while (slots_[at].key != empty && slots_[at].key != wanted) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

/// The tokens of words seen before. A word has one slot, and the newest word of a slot stays, so the size is bounded; a thread
/// that finds a group of slots in use goes without.
class Bpe::Cache {
 public:
  static constexpr std::size_t longest = 64;

  bool append(std::string_view word, std::vector<TokenSpan>& out) {
    const std::size_t hash = std::hash<std::string_view>{}(word);
    const std::unique_lock lock(locks_[hash % locks_.size()], std::try_to_lock);
    if (!lock.owns_lock()) return false;
    const Entry& entry = entries_[hash % entries_.size()];
    if (entry.word != word) return false;
    out.insert(out.end(), entry.tokens.begin(), entry.tokens.end());
    return true;
  }

  void keep(std::string_view word, const TokenSpan* begin, const TokenSpan* end) {
    const std::size_t hash = std::hash<std::string_view>{}(word);
    const std::unique_lock lock(locks_[hash % locks_.size()], std::try_to_lock);
    if (!lock.owns_lock()) return;
    Entry& entry = entries_[hash % entries_.size()];
    entry.word = word;
    entry.tokens.assign(begin, end);
  }

 private:
  struct Entry {
    std::string word;
    std::vector<TokenSpan> tokens;
  };
  std::array<std::mutex, 64> locks_;
  std::vector<Entry> entries_ = std::vector<Entry>(1 << 14);
};

/// One symbol of a word under way; symbols form a list, since a merge takes one out of the middle.
struct Bpe::Symbol {
  std::int32_t id;
  std::uint32_t begin, end;
  std::int32_t before, after;  // -1: none
};

Bpe::Bpe(Bpe&&) noexcept = default;
Bpe::~Bpe() = default;

Bpe::Bpe(BpeModel model, std::string_view name)
    : model_(std::move(model)),
      merges_(std::make_unique<MergeTable>(model_.merges.size())),
      cache_(std::make_unique<Cache>()) {
  byte_ids_.fill(-1);
  ids_.reserve(model_.tokens.size());
  for (std::size_t i = 0; i < model_.tokens.size(); ++i) {
    const std::string& token = model_.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    if (token.empty()) continue;
    ids_.emplace(token, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    const auto found = ids_.find(model_.byte_level ? to_byte_alphabet(one) : fmt::format("<0x{:02X}>", byte));
    if (found != ids_.end()) byte_ids_[static_cast<std::size_t>(byte)] = found->second;
  }
  if (!model_.unknown.empty()) {
    const auto found = ids_.find(model_.unknown);
    if (found == ids_.end()) fail("{}: the unknown token \"{}\" is not in the vocabulary", name, model_.unknown);
    unknown_ = found->second;
  }
  const std::size_t prefix = model_.continuing_prefix.size();
  for (std::size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const std::string& left = model_.merges[rank].first;
    const std::string& right = model_.merges[rank].second;
    if (right.size() < prefix) fail("{}: merge {} (\"{}\" and \"{}\") lacks the prefix", name, rank, left, right);
    const auto id_of = [&](const std::string& token) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) {
        fail("{}: merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the vocabulary", name, rank, left, right,
             token);
      }
      return found->second;
    };
    const std::int32_t left_id = id_of(left);
    const std::int32_t right_id = id_of(right);
    merges_->insert(left_id, right_id, {static_cast<std::uint32_t>(rank), id_of(left + right.substr(prefix))});
  }
}

std::optional<std::int32_t> Bpe::token_id(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void Bpe::read_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  const auto push = [&](std::int32_t id, std::size_t begin, std::size_t end) {
    symbols.push_back({id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), -1, -1});
  };
  const auto push_unknown = [&](std::size_t begin, std::size_t end) {
    if (unknown_ < 0) return;
    if (model_.fuse_unknown && !symbols.empty() && symbols.back().id == unknown_ && symbols.back().end == begin) {
      symbols.back().end = static_cast<std::uint32_t>(end);
    } else {
      push(unknown_, begin, end);
    }
  };
  std::string symbol;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = model_.byte_level ? 1 : code_point_at(word, at).size;
    const std::size_t end = at + size;
    const bool plain = model_.byte_level && model_.continuing_prefix.empty() && model_.end_of_word_suffix.empty();
    std::int32_t id = -1;
    if (plain) {
      id = byte_ids_[static_cast<unsigned char>(word[at])];
    } else {
      symbol = at == 0 ? "" : model_.continuing_prefix;
      symbol += model_.byte_level ? to_byte_alphabet(word.substr(at, size)) : word.substr(at, size);
      if (end == word.size()) symbol += model_.end_of_word_suffix;
      const auto found = ids_.find(symbol);
      if (found != ids_.end()) id = found->second;
    }
    if (id >= 0) {
      push(id, at, end);
    } else if (model_.byte_fallback && !model_.byte_level &&
               std::all_of(word.begin() + static_cast<std::ptrdiff_t>(at),
                           word.begin() + static_cast<std::ptrdiff_t>(end),
                           [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; })) {
      for (std::size_t i = at; i < end; ++i) push(byte_ids_[static_cast<unsigned char>(word[i])], i, i + 1);
    } else {
      push_unknown(at, end);
    }
    at = end;
  }
}

/// Lowest rank first, and among equals the leftmost. A candidate in the heap is out of date when one of its symbols has been
/// merged since: its merge then no longer gives the same token, or its left symbol is gone.
void Bpe::merge(std::vector<Symbol>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;
    std::int32_t left_id, right_id, merged;
    bool operator<(const Candidate& other) const {  // std::priority_queue puts the greatest on top
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  static thread_local std::vector<Candidate> heap;
  heap.clear();
  const auto consider = [&](std::int32_t left) {
    if (left < 0) return;
    const std::int32_t right = symbols[static_cast<std::size_t>(left)].after;
    if (right < 0) return;
    const std::int32_t left_id = symbols[static_cast<std::size_t>(left)].id;
    const std::int32_t right_id = symbols[static_cast<std::size_t>(right)].id;
    if (const auto* merge = merges_->find(left_id, right_id)) {
      heap.push_back({merge->rank, left, left_id, right_id, merge->id});
      std::push_heap(heap.begin(), heap.end());
    }
  };

  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[static_cast<std::size_t>(i)].before = i - 1;
    symbols[static_cast<std::size_t>(i)].after = i + 1 < count ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) consider(i);

  constexpr std::int32_t gone = -2;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    if (left.id != best.left_id || left.after < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.after)];
    if (right.id != best.right_id) continue;
    left.id = best.merged;
    left.end = right.end;
    right.id = gone;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<std::size_t>(left.after)].before = best.left;
    consider(left.before);
    consider(best.left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == gone; });
}

void Bpe::encode(std::string_view word, std::vector<TokenSpan>& out) const {
  if (word.empty()) return;
  const bool short_word = word.size() <= Cache::longest;
  if (short_word && cache_->append(word, out)) return;
  const std::size_t first = out.size();
  const std::optional<std::int32_t> whole =
      model_.ignore_merges ? token_id(model_.byte_level ? to_byte_alphabet(word) : std::string(word)) : std::nullopt;
  if (whole) {
    out.push_back({*whole, 0, static_cast<std::uint32_t>(word.size())});
  } else {
    static thread_local std::vector<Symbol> symbols;
    symbols.clear();
    read_symbols(word, symbols);
    merge(symbols);
    for (const Symbol& symbol : symbols) out.push_back({symbol.id, symbol.begin, symbol.end});
  }
  if (short_word) cache_->keep(word, out.data() + first, out.data() + out.size());
}

}  // namespace kullback
