#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kullback/divergence/head.h"
#include "kullback/io/teacher_store.h"
#include "kullback/lm/model.h"
#include "kullback/train/data.h"
#include "kullback/train/response_batch.h"

namespace kullback {

/// What a store of a teacher's rows says of the rows of a data file: which stand where.
struct RecordedRows {
  std::shared_ptr<const TeacherStore> store;
  std::map<int64_t, int64_t> first_row;  ///< by line of the data file: the store's row of its first counted token
};

/// Who teaches: a model, several whose probabilities are mixed, or what was recorded of one. Never takes a gradient.
class Teacher {
 public:
  /// One model or several, with a weight each that sum to 1. Error if their vocabularies differ.
  Teacher(std::vector<Model> models, std::vector<double> weights);
  /// Recorded rows: each is the renormalised law of the tokens that were kept.
  explicit Teacher(RecordedRows recorded) : recorded_(std::move(recorded)) {}

  bool recorded() const { return recorded_.has_value(); }
  const RecordedRows& record() const { return *recorded_; }
  const std::vector<Model>& models() const { return models_; }
  /// The one model. Error if there are several, or what it said was recorded.
  const Model& model() const;
  int64_t vocabulary() const;  ///< real tokens
  int64_t parameter_count() const;

  /// Rows at a batch's counted tokens [M], of the first `vocabulary` tokens. `lines`: where each sequence stands in its file,
  /// which recorded rows are found by. `hidden`: float64 where the student's are.
  Rows rows(const ResponseBatch& batch, const std::vector<int64_t>& lines, int64_t vocabulary,
            at::ScalarType type) const;

 private:
  std::vector<Model> models_;
  std::vector<double> weights_;
  std::optional<RecordedRows> recorded_;
};

/// Whether the ids that both tokenizers have mean the same tokens.
bool same_tokens(const Tokenizer& first, const Tokenizer& second);

/// The number of tokens that both tokenizers have, ids meaning the same in both. Error naming the first that differs.
int64_t common_vocabulary(const Tokenizer& student, const Tokenizer& teacher);

/// What names the tokens of a data file as they were encoded, for a store's provenance: SHA-256 over all ids.
std::string corpus_id(const SupervisedData& data);

/// Which of the store's rows belong to which line of the data it was made from. Error if the store was made from other data,
/// with other options, or with another tokenizer.
RecordedRows recorded_rows(const std::string& path, const SupervisedData& data, const Tokenizer& tokenizer);

}  // namespace kullback
