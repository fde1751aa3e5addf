#include "kullback/distill/token_alignment.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>

namespace kullback {
namespace {

using Index = std::map<std::string, int64_t, std::less<>>;

Index indexed(std::span<const std::string> vocabulary) {
  Index index;
  for (size_t i = 0; i < vocabulary.size(); ++i) index.emplace(vocabulary[i], static_cast<int64_t>(i));
  return index;
}

/// The pieces of a word, longest first; empty where some position has none.
std::vector<int64_t> pieces(const std::string& token, const Index& student) {
  const std::string mark = "##";
  bool continues = token.starts_with(mark);
  const std::string word = continues ? token.substr(mark.size()) : token;
  std::vector<int64_t> found;
  for (size_t begin = 0; begin < word.size();) {
    size_t length = word.size() - begin;
    for (; length > 0; --length) {
      const auto piece = student.find((continues ? mark : "") + word.substr(begin, length));
      if (piece == student.end()) continue;
      found.push_back(piece->second);
      break;
    }
    if (length == 0) return {};
    begin += length, continues = true;
  }
  return found;
}

/// How each token is spelt, special ones apart from others of the same bytes.
std::vector<std::string> spelt(const Tokenizer& tokenizer) {
  std::vector<std::string> all;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    all.push_back((tokenizer.is_special(id) ? "special " : "text ") + tokenizer.token_bytes(id));
  return all;
}

/// Bytes said before each token.
std::vector<size_t> offsets(const Tokenizer& tokenizer, std::span<const int64_t> ids) {
  std::vector<size_t> before;
  size_t said = 0;
  for (const int64_t id : ids) {
    before.push_back(said);
    const auto token = static_cast<int32_t>(id);
    if (!tokenizer.is_special(token)) said += tokenizer.token_bytes(token).size();
  }
  return before;
}

}  // namespace

TokenMap split_tokens(std::span<const std::string> teacher, std::span<const std::string> student,
                      std::span<const std::string> special, const std::string& unknown) {
  const Index index = indexed(student);
  const std::set<std::string> whole(special.begin(), special.end());
  TokenMap map;
  for (const std::string& token : teacher) {
    std::vector<int64_t> split;
    if (!whole.contains(token)) {
      split = pieces(token, index);
    } else if (const auto same = index.find(token); same != index.end()) {
      split = {same->second};
    }
    if (const auto none = index.find(unknown); split.empty() && none != index.end()) split = {none->second};
    map.push_back(std::move(split));
  }
  return map;
}

std::vector<int64_t> split_token(const Tokenizer& teacher, int32_t token, const Tokenizer& student) {
  const std::string bytes = teacher.token_bytes(token);
  if (teacher.is_special(token)) {
    const auto same = student.token_id(bytes);
    return same && student.is_special(*same) ? std::vector<int64_t>{*same} : std::vector<int64_t>{};
  }
  const std::vector<int32_t> ids = student.encode(bytes, /*parse_special=*/false);
  return student.decode(ids) == bytes ? std::vector<int64_t>(ids.begin(), ids.end()) : std::vector<int64_t>{};
}

TokenMap split_tokens(const Tokenizer& teacher, const Tokenizer& student) {
  TokenMap map;
  for (int32_t id = 0; id < teacher.vocabulary_size(); ++id) map.push_back(split_token(teacher, id, student));
  return map;
}

std::vector<std::pair<int64_t, int64_t>> shared_tokens(std::span<const std::string> teacher,
                                                       std::span<const std::string> student) {
  const Index index = indexed(student);
  std::vector<std::pair<int64_t, int64_t>> shared;
  for (size_t i = 0; i < teacher.size(); ++i) {
    const auto same = index.find(teacher[i]);
    if (same != index.end()) shared.emplace_back(static_cast<int64_t>(i), same->second);
  }
  return shared;
}

std::vector<std::pair<int64_t, int64_t>> shared_tokens(const Tokenizer& teacher, const Tokenizer& student) {
  return shared_tokens(spelt(teacher), spelt(student));
}

TokenMatch match_tokens(std::span<const std::string> teacher, std::span<const std::string> student) {
  TokenMatch match{std::vector<bool>(teacher.size()), std::vector<bool>(student.size())};
  size_t next = 0;
  for (size_t i = 0; i < teacher.size(); ++i) {
    const auto found = std::find(student.begin() + static_cast<std::ptrdiff_t>(next), student.end(), teacher[i]);
    if (found == student.end()) continue;
    const auto place = static_cast<size_t>(found - student.begin());
    match.teacher[i] = match.student[place] = true;
    next = place + 1;
  }
  return match;
}

TokenMatch match_prefixes(const Tokenizer& teacher, std::span<const int64_t> teacher_ids, const Tokenizer& student,
                          std::span<const int64_t> student_ids) {
  const std::vector<size_t> theirs = offsets(teacher, teacher_ids), ours = offsets(student, student_ids);
  TokenMatch match{std::vector<bool>(theirs.size()), std::vector<bool>(ours.size())};
  for (size_t i = 0, j = 0; i < theirs.size() && j < ours.size();) {
    if (theirs[i] == ours[j]) {
      match.teacher[i++] = match.student[j++] = true;
    } else {
      ++(theirs[i] < ours[j] ? i : j);
    }
  }
  return match;
}

TokenGroups group_tokens(std::span<const int64_t> teacher_ids, const TokenMap& map) {
  TokenGroups result;
  for (const int64_t id : teacher_ids) {
    std::vector<int64_t> places;
    for (const int64_t piece : map[static_cast<size_t>(id)]) {
      places.push_back(std::ssize(result.student_ids));
      result.student_ids.push_back(piece);
    }
    result.groups.push_back(std::move(places));
  }
  return result;
}

at::Tensor padded_lists(const std::vector<std::vector<int64_t>>& lists) {
  size_t longest = 0;
  for (const auto& list : lists) longest = std::max(longest, list.size());
  at::Tensor padded = at::full({std::ssize(lists), static_cast<int64_t>(longest)}, -1, at::kLong);
  for (size_t i = 0; i < lists.size(); ++i) {
    if (!lists[i].empty())
      padded[static_cast<int64_t>(i)].narrow(0, 0, std::ssize(lists[i])).copy_(at::tensor(lists[i]));
  }
  return padded;
}

at::Tensor split_embedding(const TokenMap& map, const at::Tensor& teacher, const at::Tensor& student) {
  at::Tensor sum = at::zeros_like(student), uses = at::zeros({student.size(0), 1}, student.options());
  for (size_t y = 0; y < map.size(); ++y) {
    for (const int64_t piece : std::set<int64_t>(map[y].begin(), map[y].end())) {
      sum[piece] += teacher[static_cast<int64_t>(y)].narrow(0, 0, student.size(1)).to(student.scalar_type());
      uses[piece] += 1;
    }
  }
  return at::where(uses > 0, sum / uses.clamp_min(1), student);
}

}  // namespace kullback
