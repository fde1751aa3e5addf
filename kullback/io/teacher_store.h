#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kullback/io/mapped_file.h"

namespace kullback {

/// Of one row of a teacher: the tokens that were kept, in the order of falling probability (ties: the lower id), with their
/// log-probabilities under the full softmax.
struct TeacherRow {
  std::vector<int32_t> ids;
  std::vector<double> logps;
  double label_logp = 0;  ///< where the store keeps it
};

/// How rows are stored. Format KULLTL01 (Kullback's teacher log-probabilities): a header of 64 bytes, blocks of records with a
/// checksum each, and an index. A record holds the first token's log-probability as float32 and of the others the distance to
/// it in steps of 2^-delta_exp, so that a decoded log-probability is off by at most half a step (the first by its rounding).
struct TeacherStoreFormat {
  int64_t vocabulary = 0;  ///< V
  int64_t k = 50;          ///< most tokens of a row
  double p = 0.95;         ///< mass at which a row was cut
  int id_bits = 0;         ///< 0: as many as V needs
  int value_bits = 16;
  int delta_exp = 11;
  bool labels = false;  ///< the label's log-probability too
  int64_t rows_per_block = 1024;
  std::array<uint8_t, 16> provenance = {};

  double step() const;  ///< 2^-delta_exp
};

/// Provenance: the first 16 bytes of SHA-256 of "teacher id\ntokenizer id\ncorpus id".
std::array<uint8_t, 16> store_provenance(const std::string& teacher, const std::string& tokenizer,
                                         const std::string& corpus);

/// What a row becomes when it is stored and read back: rounded, and ended before the first token whose distance to the top does
/// not fit.
TeacherRow stored_row(const TeacherRow& row, const TeacherStoreFormat& format);

/// Bounds of the error of reading back, at a temperature: of each log-probability, of KL(F || F^) in nats (Hoeffding), of total
/// variation, for the renormalised laws F before and F^ after.
struct StoreBounds {
  double log_probability, kl, total_variation;
};
StoreBounds store_bounds(const TeacherStoreFormat& format, double temperature);

/// Codes of a row's tokens as the record holds them, the first being 0.
std::vector<int64_t> store_codes(const TeacherRow& row, const TeacherStoreFormat& format);

/// Writes a store, block by block. What is written of an interrupted run is taken up again: blocks that are whole are kept.
class TeacherStoreWriter {
 public:
  /// Writes `path`.partial until finish() renames it. Error if that belongs to another store.
  TeacherStoreWriter(const std::filesystem::path& path, const TeacherStoreFormat& format);
  ~TeacherStoreWriter();
  TeacherStoreWriter(const TeacherStoreWriter&) = delete;
  TeacherStoreWriter& operator=(const TeacherStoreWriter&) = delete;

  int64_t rows() const;  ///< so far, in whole blocks and in the one that is being filled
  void append(const TeacherRow& row);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A store that is read, any row at any time. Safe to use from one thread.
class TeacherStore {
 public:
  /// Error naming the file if it is no store, cut, or its header or index lies.
  static TeacherStore open(const std::filesystem::path& path);

  const TeacherStoreFormat& format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t bytes() const;
  /// Error naming file and block if a checksum does not match; each block is checked when it is first read.
  TeacherRow row(int64_t index) const;
  /// Checks every block.
  void check() const;

 private:
  TeacherStore() = default;
  std::span<const std::byte> block(int64_t index) const;

  std::string name_;
  std::shared_ptr<const MappedFile> file_;
  TeacherStoreFormat format_;
  int64_t rows_ = 0;
  std::vector<uint64_t> offsets_;  // of the blocks
  mutable std::vector<bool> checked_;
  mutable int64_t at_block_ = -1, at_row_ = 0;  // where the last read ended, for the next in order
  mutable size_t at_byte_ = 0;
};

}  // namespace kullback
