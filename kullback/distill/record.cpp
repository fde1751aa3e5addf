#include "kullback/distill/record.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/error.h"
#include "kullback/distill/pd.h"
#include "kullback/io/files.h"
#include "kullback/train/interrupt.h"
#include "kullback/train/teacher.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

/// The law of what a row keeps, renormalised.
std::vector<double> law_of(const std::vector<double>& logps) {
  std::vector<double> law;
  double sum = 0;
  for (const double logp : logps) law.push_back(std::exp(logp - logps[0])), sum += law.back();
  for (double& p : law) p /= sum;
  return law;
}

void measure(const TeacherRow& row, const TeacherStoreFormat& format, RecordResult& result) {
  double mass = 0;
  for (const double logp : row.logps) mass += std::exp(logp);
  const TeacherRow stored = stored_row(row, format);
  TeacherRow kept = row;
  kept.logps.resize(stored.logps.size());
  const std::vector<double> before = law_of(kept.logps), after = law_of(stored.logps);
  double kl = 0, tv = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] > 0) kl += before[i] * std::log(before[i] / after[i]);
    tv += 0.5 * std::fabs(before[i] - after[i]);
    result.decoding_logp = std::max(result.decoding_logp, std::fabs(std::log(before[i]) - std::log(after[i])));
  }
  result.decoding_kl = std::max(result.decoding_kl, kl), result.decoding_tv = std::max(result.decoding_tv, tv);
  result.truncation_kl -= std::log(std::min(mass, 1.0)), result.truncation_tv += std::max(1 - mass, 0.0);
  result.kept += static_cast<double>(stored.ids.size());
  ++result.measured;
}

}  // namespace

const Options<RecordOptions>& record_options() {
  using O = RecordOptions;
  static const auto options =
      Options<O>()
          .option("teacher", &O::teacher, "the teacher: a name, a GGUF file or a Hugging Face folder")
          .option("output", &O::output, "the store to write; a description is written beside it")
          .option("p", &O::p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                  "mass of a row that is kept, before k cuts it", "pd's best recipe")
          .option("k", &O::k, between(1, 65535), "tokens of a row that are kept at most", "pd's best recipe")
          .option("value-bits", &O::value_bits, between(1, 32), "bits of each log-probability; small: 8")
          .option("delta-exp", &O::delta_exp, between(0, 40),
                  "log-probabilities are kept in steps of 2 to minus this; small: 4")
          .option("labels", &O::labels, "keep the log-probability of the text's own token too")
          .option("rows-per-block", &O::rows_per_block, at_least(1),
                  "rows that share a checksum, and that an interruption may cost")
          .option("batch-size", &O::batch_size, at_least(1), "texts a forward pass");
  return options;
}

RecordResult record_teacher(const RecordOptions& o, const DataOptions& data_options,
                            const std::function<void(int64_t, int64_t)>& progress) {
  if (fs::exists(o.output)) fail("option --output: {} exists already", o.output);
  const at::NoGradGuard no_grad;
  const InterruptGuard guard;
  const Model teacher = load_model(o.teacher);
  const SupervisedData data = load_supervised(data_options.data, teacher, data_options);
  const Json described{{"format", "KULLTL01"},
                       {"teacher", o.teacher},
                       {"tokenizer", sha256_hex(teacher.text().to_json().dump())},
                       {"corpus", corpus_id(data)},
                       {"data", fs::path(data_options.data).filename().string()},
                       {"max_length", data_options.max_length}};
  const auto text = [&](const char* name) { return described.at(name).get<std::string>(); };
  RecordResult result;
  result.format = {.vocabulary = teacher.text().vocabulary_size(),
                   .k = std::min(o.k, teacher.text().vocabulary_size()),
                   .p = o.p,
                   .value_bits = o.value_bits,
                   .delta_exp = o.delta_exp,
                   .labels = o.labels,
                   .rows_per_block = o.rows_per_block,
                   .provenance = store_provenance(text("teacher"), text("tokenizer"), text("corpus"))};
  TeacherStoreWriter writer(o.output, result.format);
  int64_t there = writer.rows();  // rows of a recording that was interrupted
  for (size_t first = 0; first < data.examples.size(); first += static_cast<size_t>(o.batch_size)) {
    std::vector<const Sequence*> sequences;
    const size_t last = std::min(first + static_cast<size_t>(o.batch_size), data.examples.size());
    for (size_t i = first; i < last; ++i) sequences.push_back(&data.examples[i].sequence);
    const ResponseBatch batch = response_batch(sequences);
    progress(static_cast<int64_t>(last), std::ssize(data.examples));
    const int64_t count = batch.labels.numel();
    if (there >= count) {
      there -= count;
      continue;
    }
    if (interrupted()) {
      result.rows = writer.rows(), result.interrupted = true;
      return result;
    }
    Rows rows = teacher.transformer.head_rows(response_hidden(teacher.transformer, batch));
    rows.vocabulary = result.format.vocabulary;
    const std::vector<TeacherRow> kept =
        pd_rows(pd_truncate(rows, o.p, o.k), o.labels ? label_logps(rows, batch.labels) : at::Tensor());
    for (const TeacherRow& row : kept) {
      if (there > 0) {
        --there;
        continue;
      }
      measure(row, result.format, result);
      writer.append(row);
    }
  }
  result.rows = writer.rows();
  write_file(o.output + ".json", described.dump(1) + "\n");
  writer.finish();
  result.bytes = static_cast<int64_t>(fs::file_size(o.output));
  const double n = std::max<double>(1, static_cast<double>(result.measured));
  result.kept /= n, result.truncation_kl /= n, result.truncation_tv /= n;
  return result;
}

}  // namespace kullback
