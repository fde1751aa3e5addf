#include "kullback/train/teacher.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"

namespace kullback {

using at::Tensor;

namespace {

/// Log-probabilities [n,V] of the mixture of several models' laws, from their hidden states side by side.
Rows mixture(const std::vector<Rows>& rows, const std::vector<double>& weights, int64_t vocabulary) {
  std::vector<Tensor> hidden;
  std::vector<int64_t> widths;
  for (const Rows& one : rows) {
    hidden.push_back(one.hidden);
    widths.push_back(one.hidden.size(1));
  }
  Rows result;
  result.hidden = at::cat(hidden, 1);
  result.vocabulary = vocabulary;
  result.make = [rows, weights, widths, vocabulary](const Tensor& block) {
    const std::vector<Tensor> parts = block.split_with_sizes(widths, 1);
    Tensor sum;
    for (size_t i = 0; i < parts.size(); ++i) {
      Tensor z = at::matmul(parts[i].to(rows[i].weight.scalar_type()), rows[i].weight.narrow(0, 0, vocabulary).t());
      if (rows[i].softcap > 0) z = at::tanh(z / rows[i].softcap) * rows[i].softcap;
      const Tensor logps = at::log_softmax(z, -1) + std::log(weights[i]);
      sum = sum.defined() ? at::logaddexp(sum, logps) : logps;
    }
    return sum;
  };
  return result;
}

/// Rows from what was recorded: `hidden` holds a row's ids, then its log-probabilities.
Rows recorded(const RecordedRows& record, const ResponseBatch& batch, const std::vector<int64_t>& lines,
              int64_t vocabulary, at::ScalarType type) {
  const int64_t total = batch.labels.numel(), width = record.store->format().k;
  const double none = -std::numeric_limits<double>::infinity();
  Tensor ids = at::zeros({total, width}, at::kDouble), logps = at::full({total, width}, none, at::kDouble);
  double* id = ids.mutable_data_ptr<double>();
  double* logp = logps.mutable_data_ptr<double>();
  int64_t m = 0;
  for (size_t i = 0; i < batch.counts.size(); ++i) {
    const auto found = record.first_row.find(lines[i]);
    if (found == record.first_row.end()) fail("line {}: the teacher's rows for it were not recorded", lines[i]);
    for (int64_t t = 0; t < batch.counts[i]; ++t, ++m) {
      const TeacherRow row = record.store->row(found->second + t);
      int64_t kept = 0;
      for (size_t k = 0; k < row.ids.size(); ++k) {
        if (row.ids[k] >= vocabulary) continue;
        id[m * width + kept] = row.ids[k];
        logp[m * width + kept++] = row.logps[k];
      }
      for (int64_t k = kept; kept > 0 && k < width; ++k) {  // a place that is left over repeats the first
        id[m * width + k] = id[m * width];
        logp[m * width + k] = logp[m * width];
      }
    }
  }
  Rows result;
  result.hidden = at::cat({ids, logps}, 1).to(type == at::kDouble ? at::kDouble : at::kFloat);
  result.vocabulary = vocabulary;
  result.make = [width, vocabulary, none](const Tensor& block) {
    const Tensor kept = block.narrow(1, width, width);
    const Tensor places = block.narrow(1, 0, width).to(at::kLong);
    return at::full({block.size(0), vocabulary}, none, kept.options()).scatter_(1, places, kept);
  };
  return result;
}

}  // namespace

Teacher::Teacher(std::vector<Model> models, std::vector<double> weights)
    : models_(std::move(models)), weights_(std::move(weights)) {
  if (models_.empty()) fail("option --teacher: none is named");
  for (const Model& model : models_) {
    if (model.text().vocabulary_size() != models_[0].text().vocabulary_size())
      fail("option --teacher: {} has {} tokens and {} {}; teachers that are mixed share a tokenizer", models_[0].name,
           models_[0].text().vocabulary_size(), model.name, model.text().vocabulary_size());
  }
}

const Model& Teacher::model() const {
  if (recorded()) fail("option --teacher-record: this method has to ask the teacher itself; give --teacher");
  if (models_.size() != 1) fail("option --teacher: this method takes one teacher, and there are {}", models_.size());
  return models_[0];
}

int64_t Teacher::vocabulary() const {
  return recorded() ? recorded_->store->format().vocabulary : models_[0].text().vocabulary_size();
}

int64_t Teacher::parameter_count() const {
  int64_t count = 0;
  for (const Model& model : models_) count += model.transformer.parameter_count();
  return count;
}

Rows Teacher::rows(const ResponseBatch& batch, const std::vector<int64_t>& lines, int64_t vocabulary,
                   at::ScalarType type) const {
  const at::NoGradGuard no_grad;
  if (recorded()) return kullback::recorded(*recorded_, batch, lines, vocabulary, type);
  std::vector<Rows> all;
  for (const Model& model : models_) {
    all.push_back(model.transformer.head_rows(response_hidden(model.transformer, batch)));
    all.back().vocabulary = std::min(vocabulary, model.config().vocabulary_size);
  }
  return all.size() == 1 ? all[0] : mixture(all, weights_, vocabulary);
}

namespace {

/// The first id that means another token to the other; the size of the smaller vocabulary where there is none.
int64_t first_difference(const Tokenizer& first, const Tokenizer& second) {
  const int64_t common = std::min(first.vocabulary_size(), second.vocabulary_size());
  for (int64_t id = 0; id < common; ++id) {
    const auto token = static_cast<int32_t>(id);
    if (first.token_bytes(token) != second.token_bytes(token)) return id;
  }
  return common;
}

}  // namespace

bool same_tokens(const Tokenizer& first, const Tokenizer& second) {
  return first_difference(first, second) == std::min(first.vocabulary_size(), second.vocabulary_size());
}

int64_t common_vocabulary(const Tokenizer& student, const Tokenizer& teacher) {
  const int64_t id = first_difference(student, teacher);
  if (id < std::min(student.vocabulary_size(), teacher.vocabulary_size())) {
    const auto token = static_cast<int32_t>(id);
    fail(
        "option --teacher: token {} is {} to the teacher and {} to the student; this method needs models of one "
        "tokenizer (uld and reduced-vocab do not)",
        id, Json(teacher.token_bytes(token)).dump(-1, ' ', true, Json::error_handler_t::replace),
        Json(student.token_bytes(token)).dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  return id;
}

std::string corpus_id(const SupervisedData& data) {
  std::string bytes;
  for (const Example& example : data.examples) {
    bytes += fmt::format("{} {} {}:", example.line, example.sequence.response_begin, example.sequence.ids.size());
    const auto* from = reinterpret_cast<const char*>(example.sequence.ids.data());
    bytes.append(from, example.sequence.ids.size() * sizeof(int32_t));
  }
  return sha256_hex(bytes);
}

RecordedRows recorded_rows(const std::string& path, const SupervisedData& data, const Tokenizer& tokenizer) {
  auto store = std::make_shared<const TeacherStore>(TeacherStore::open(path));
  const Json described = read_json(path + ".json");
  for (const char* name : {"teacher", "tokenizer", "corpus"}) {
    if (!described.contains(name) || !described[name].is_string())
      fail("{}.json: no text \"{}\"; it is written beside a store by `kullback teacher record`", path, name);
  }
  const auto text = [&](const char* name) { return described[name].get<std::string>(); };
  if (store_provenance(text("teacher"), text("tokenizer"), text("corpus")) != store->format().provenance)
    fail("{}: does not belong to the description beside it, {}.json", path, path);
  if (text("tokenizer") != sha256_hex(tokenizer.to_json().dump()))
    fail("{}: was recorded with another tokenizer than the student's", path);
  if (text("corpus") != corpus_id(data)) {
    fail("{}: was recorded of other rows than those of {}; data, --max-rows, --max-length and --text-format must agree",
         path, data.path);
  }
  RecordedRows rows{.store = store, .first_row = {}};
  int64_t next = 0;
  for (const Example& example : data.examples) {
    rows.first_row[example.line] = next;
    next += example.sequence.counted();
  }
  if (next != store->rows()) fail("{}: has {} rows, and the data {} counted tokens", path, store->rows(), next);
  return rows;
}

}  // namespace kullback
