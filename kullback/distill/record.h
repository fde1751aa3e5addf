#pragma once

#include <functional>
#include <string>

#include "kullback/io/teacher_store.h"
#include "kullback/train/data.h"

namespace kullback {

/// What `kullback teacher record` keeps of a teacher.
struct RecordOptions {
  std::string teacher;
  std::string output;
  double p = 0.95;
  int64_t k = 50;
  int value_bits = 16, delta_exp = 11;
  bool labels = false;
  int64_t rows_per_block = 1024;
  int64_t batch_size = 4;
};
const Options<RecordOptions>& record_options();

/// What was written, and how exactly it gives the teacher's rows back: measured on every row, not estimated.
struct RecordResult {
  int64_t rows = 0, measured = 0;  ///< in the store; of them measured now (a resumed recording measures the new ones)
  bool interrupted = false;        ///< before all rows were recorded; the same call goes on
  int64_t bytes = 0;
  double kept = 0;                              ///< mean tokens a row
  double truncation_kl = 0, truncation_tv = 0;  ///< mean of KL(kept || full) = -log M and of 1 - M, temperature 1
  double decoding_kl = 0, decoding_tv = 0,
         decoding_logp = 0;  ///< largest of a row, against the kept row before it was stored
  TeacherStoreFormat format = {};
};

/// Runs the teacher over the rows of a data file, in its order, and writes the store and its description beside it. A
/// recording that was interrupted goes on where it stopped.
RecordResult record_teacher(const RecordOptions& options, const DataOptions& data,
                            const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace kullback
