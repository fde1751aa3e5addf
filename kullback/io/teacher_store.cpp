#include "kullback/io/teacher_store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "KULLTL01";
constexpr size_t header_size = 64;

/// CRC-32 with zlib's polynomial.
uint32_t crc32(std::span<const std::byte> bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
      made[i] = c;
    }
    return made;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte b : bytes) crc = table[(crc ^ static_cast<uint32_t>(b)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

using Bytes = std::vector<std::byte>;

/// Little-endian, as the machines are that this builds on.
template <class T>
void put(Bytes& bytes, T value) {
  static_assert(std::endian::native == std::endian::little);
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <class T>
T get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

TeacherStoreFormat settled(TeacherStoreFormat format) {
  if (format.vocabulary < 1 || format.vocabulary > (int64_t{1} << 31))
    fail("a store of a vocabulary of {} cannot be made", format.vocabulary);
  if (format.id_bits == 0)
    format.id_bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(format.vocabulary - 1))));
  if (format.id_bits > 32 || (format.id_bits < 32 && format.vocabulary > (int64_t{1} << format.id_bits)))
    fail("option --id-bits: {} bits do not hold the ids of a vocabulary of {}", format.id_bits, format.vocabulary);
  if (format.value_bits < 1 || format.value_bits > 32)
    fail("option --value-bits: {} is not between 1 and 32", format.value_bits);
  if (format.delta_exp < 0 || format.delta_exp > 40)
    fail("option --delta-exp: {} is not between 0 and 40", format.delta_exp);
  if (format.k < 1 || format.k > 65535) fail("option --k: {} is not between 1 and 65535", format.k);
  if (!(format.p > 0 && format.p <= 1)) fail("option --p: {} is not in (0, 1]", format.p);
  if (format.rows_per_block < 1) fail("a block of {} rows cannot be made", format.rows_per_block);
  return format;
}

Bytes header_bytes(const TeacherStoreFormat& f, int64_t rows, uint64_t index) {
  Bytes bytes;
  for (const char c : magic) bytes.push_back(static_cast<std::byte>(c));
  put(bytes, static_cast<uint32_t>(header_size));
  put(bytes, static_cast<uint32_t>(f.vocabulary));
  put(bytes, static_cast<uint64_t>(rows));
  put(bytes, static_cast<uint32_t>(f.k));
  put(bytes, static_cast<float>(f.p));
  for (const int v : {f.id_bits, f.value_bits, f.delta_exp, f.labels ? 1 : 0}) put(bytes, static_cast<uint8_t>(v));
  put(bytes, static_cast<uint32_t>(f.rows_per_block));
  put(bytes, index);
  for (const uint8_t b : f.provenance) put(bytes, b);
  return bytes;
}

/// The format of a header; `rows` and `index` what else it says.
TeacherStoreFormat read_header(std::span<const std::byte> bytes, const std::string& name, int64_t& rows,
                               uint64_t& index) {
  if (bytes.size() < header_size || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    fail("{}: is no store of a teacher's rows (it does not begin with {})", name, magic);
  if (get<uint32_t>(bytes, 8) != header_size) fail("{}: its header has {} bytes", name, get<uint32_t>(bytes, 8));
  TeacherStoreFormat f{.vocabulary = get<uint32_t>(bytes, 12),
                       .k = get<uint32_t>(bytes, 24),
                       .p = get<float>(bytes, 28),
                       .id_bits = get<uint8_t>(bytes, 32),
                       .value_bits = get<uint8_t>(bytes, 33),
                       .delta_exp = get<uint8_t>(bytes, 34),
                       .labels = (get<uint8_t>(bytes, 35) & 1) != 0,
                       .rows_per_block = get<uint32_t>(bytes, 36)};
  std::memcpy(f.provenance.data(), bytes.data() + 48, 16);
  const auto count = get<uint64_t>(bytes, 16);
  if (count > (uint64_t{1} << 48)) fail("{}: its header claims {} rows", name, count);
  rows = static_cast<int64_t>(count);
  index = get<uint64_t>(bytes, 40);
  if (f.id_bits == 0) fail("{}: its header gives ids no bits", name);
  try {
    return settled(f);
  } catch (const Error& error) {
    fail("{}: its header is damaged: {}", name, error.what());
  }
}

size_t record_bytes(size_t tokens, const TeacherStoreFormat& f) {
  const auto n = static_cast<uint64_t>(tokens);
  const uint64_t bits = n * static_cast<uint64_t>(f.id_bits) + (n - 1) * static_cast<uint64_t>(f.value_bits);
  return 2 + 4 + (f.labels ? 4 : 0) + static_cast<size_t>((bits + 7) / 8);
}

/// Length of the record that begins at `at`. Error if it does not end within the bytes.
size_t record_length(std::span<const std::byte> bytes, size_t at, const TeacherStoreFormat& f) {
  const size_t n = at + 2 <= bytes.size() ? get<uint16_t>(bytes, at) : 0;
  if (n == 0 || at + record_bytes(n, f) > bytes.size()) return 0;
  return record_bytes(n, f);
}

Bytes encoded(const TeacherRow& row, const TeacherStoreFormat& f) {
  const std::vector<int64_t> codes = store_codes(row, f);
  Bytes bytes;
  put(bytes, static_cast<uint16_t>(codes.size()));
  put(bytes, static_cast<float>(row.logps[0]));
  if (f.labels) put(bytes, static_cast<float>(row.label_logp));
  uint64_t held = 0;
  int filled = 0;
  const auto add = [&](uint64_t value, int bits) {
    for (int i = 0; i < bits; ++i) {  // least significant bit first
      held |= ((value >> i) & 1) << filled;
      if (++filled < 8) continue;
      bytes.push_back(static_cast<std::byte>(held));
      held = 0, filled = 0;
    }
  };
  for (size_t i = 0; i < codes.size(); ++i) add(static_cast<uint64_t>(row.ids[i]), f.id_bits);
  for (size_t i = 1; i < codes.size(); ++i) add(static_cast<uint64_t>(codes[i]), f.value_bits);
  if (filled > 0) bytes.push_back(static_cast<std::byte>(held));
  return bytes;
}

TeacherRow decoded(std::span<const std::byte> record, const TeacherStoreFormat& f) {
  const size_t n = get<uint16_t>(record, 0);
  const double top = get<float>(record, 2);
  TeacherRow row;
  if (f.labels) row.label_logp = get<float>(record, 6);
  const auto bits = record.subspan(f.labels ? 10 : 6);
  size_t at = 0;
  const auto take = [&](int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i, ++at) value |= ((static_cast<uint64_t>(bits[at / 8]) >> (at % 8)) & 1) << i;
    return value;
  };
  for (size_t i = 0; i < n; ++i) row.ids.push_back(static_cast<int32_t>(take(f.id_bits)));
  row.logps.push_back(top);
  for (size_t i = 1; i < n; ++i) row.logps.push_back(top - static_cast<double>(take(f.value_bits)) * f.step());
  return row;
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) fail("{}: cannot be written: {}", name, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

}  // namespace

double TeacherStoreFormat::step() const { return std::ldexp(1.0, -delta_exp); }

std::array<uint8_t, 16> store_provenance(const std::string& teacher, const std::string& tokenizer,
                                         const std::string& corpus) {
  const std::string digits = sha256_hex(teacher + "\n" + tokenizer + "\n" + corpus);
  std::array<uint8_t, 16> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

std::vector<int64_t> store_codes(const TeacherRow& row, const TeacherStoreFormat& format) {
  if (row.ids.empty() || row.ids.size() != row.logps.size()) fail("a row without a token cannot be stored");
  const double most = std::ldexp(1.0, format.value_bits) - 1;
  std::vector<int64_t> codes;
  for (const double logp : row.logps) {
    const double code = codes.empty() ? 0 : std::floor((row.logps[0] - logp) / format.step() + 0.5);
    if (!(code <= most) || codes.size() == 65535) break;
    codes.push_back(static_cast<int64_t>(code));
  }
  return codes;
}

TeacherRow stored_row(const TeacherRow& row, const TeacherStoreFormat& format) {
  const TeacherStoreFormat f = settled(format);
  return decoded(encoded(row, f), f);
}

StoreBounds store_bounds(const TeacherStoreFormat& format, double temperature) {
  const double step = format.step() / temperature;
  return {.log_probability = step, .kl = step * step / 8, .total_variation = step / 4};
}

struct TeacherStoreWriter::State {
  fs::path path, partial;
  TeacherStoreFormat format;
  int descriptor = -1;
  uint64_t size = 0;  // bytes in the file
  int64_t whole_rows = 0, block_rows = 0;
  Bytes block;
  std::vector<uint64_t> offsets;

  ~State() {
    if (descriptor >= 0) ::close(descriptor);
  }
  void write(std::span<const std::byte> bytes) {
    write_all(descriptor, bytes, path.string());
    size += bytes.size();
  }
  void end_block() {
    if (block_rows == 0) return;
    offsets.push_back(size);
    put(block, crc32(block));
    write(block);
    ::fsync(descriptor);
    whole_rows += block_rows;
    block.clear(), block_rows = 0;
  }
  /// Takes up the whole blocks of an interrupted run.
  void take_up() {
    const MappedFile file = MappedFile::open(partial);
    const auto bytes = file.bytes();
    const Bytes header = header_bytes(format, 0, 0);
    if (bytes.size() < header_size || !std::equal(header.begin(), header.end(), bytes.begin()))
      fail("{}: belongs to another store; remove it, or record with the same teacher, data and options",
           partial.string());
    size = header_size;
    while (true) {
      size_t at = size;
      int64_t rows = 0;
      for (size_t length = 0; rows < format.rows_per_block && (length = record_length(bytes, at, format)) > 0; ++rows)
        at += length;
      if (rows < format.rows_per_block || at + 4 > bytes.size()) break;
      if (crc32(bytes.subspan(size, at - size)) != get<uint32_t>(bytes, at)) break;
      offsets.push_back(size);
      whole_rows += rows;
      size = at + 4;
    }
  }
};

TeacherStoreWriter::TeacherStoreWriter(const fs::path& path, const TeacherStoreFormat& format)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path, s.partial = path.string() + ".partial", s.format = settled(format);
  const bool there = fs::exists(s.partial) && fs::file_size(s.partial) > 0;
  if (there) s.take_up();
  s.descriptor = ::open(s.partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (s.descriptor < 0) fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
  if (!there) {
    s.write(header_bytes(s.format, 0, 0));
    return;
  }
  if (::ftruncate(s.descriptor, static_cast<off_t>(s.size)) != 0 ||
      ::lseek(s.descriptor, static_cast<off_t>(s.size), SEEK_SET) < 0)
    fail("{}: cannot be taken up again: {}", path.string(), std::strerror(errno));
}

TeacherStoreWriter::~TeacherStoreWriter() = default;

int64_t TeacherStoreWriter::rows() const { return state_->whole_rows + state_->block_rows; }

void TeacherStoreWriter::append(const TeacherRow& row) {
  State& s = *state_;
  for (const int32_t id : row.ids) {
    if (id < 0 || id >= s.format.vocabulary) fail("{}: token {} is outside the vocabulary", s.path.string(), id);
  }
  const Bytes record = encoded(row, s.format);
  s.block.insert(s.block.end(), record.begin(), record.end());
  if (++s.block_rows == s.format.rows_per_block) s.end_block();
}

void TeacherStoreWriter::finish() {
  State& s = *state_;
  s.end_block();
  const uint64_t index = s.size;
  Bytes bytes;
  for (const uint64_t offset : s.offsets) put(bytes, offset);
  put(bytes, crc32(bytes));
  s.write(bytes);
  const Bytes header = header_bytes(s.format, s.whole_rows, index);
  if (::lseek(s.descriptor, 0, SEEK_SET) < 0) fail("{}: cannot be written: {}", s.path.string(), std::strerror(errno));
  write_all(s.descriptor, header, s.path.string());
  ::fsync(s.descriptor);
  fs::rename(s.partial, s.path);
}

TeacherStore TeacherStore::open(const fs::path& path) {
  TeacherStore store;
  store.name_ = path.string();
  store.file_ = std::make_shared<const MappedFile>(MappedFile::open(path));
  const auto bytes = store.file_->bytes();
  uint64_t index = 0;
  store.format_ = read_header(bytes, store.name_, store.rows_, index);
  const auto per_block = static_cast<uint64_t>(store.format_.rows_per_block);
  const uint64_t blocks = (static_cast<uint64_t>(store.rows_) + per_block - 1) / per_block;
  if (index < header_size || index > bytes.size() || blocks > bytes.size() / 8 ||
      bytes.size() - index != 8 * blocks + 4)
    fail("{}: is cut, or its index is not where its header says", store.name_);
  if (crc32(bytes.subspan(index, 8 * blocks)) != get<uint32_t>(bytes, index + 8 * blocks))
    fail("{}: the checksum of its index does not match", store.name_);
  for (uint64_t b = 0; b < blocks; ++b) store.offsets_.push_back(get<uint64_t>(bytes, index + 8 * b));
  store.offsets_.push_back(index);
  for (uint64_t b = 0; b < blocks; ++b) {
    const uint64_t from = store.offsets_[b], to = store.offsets_[b + 1];
    if (from < header_size || to > index || to < from + 4)
      fail("{}: block {} lies outside of the file", store.name_, b);
  }
  store.checked_.assign(blocks, false);
  return store;
}

int64_t TeacherStore::bytes() const { return static_cast<int64_t>(file_->size()); }

std::span<const std::byte> TeacherStore::block(int64_t index) const {
  const auto b = static_cast<size_t>(index);
  const auto bytes = file_->bytes().subspan(offsets_[b], offsets_[b + 1] - offsets_[b] - 4);
  if (!checked_[b]) {
    if (crc32(bytes) != get<uint32_t>(file_->bytes(), offsets_[b + 1] - 4))
      fail("{}: the checksum of block {} (rows from {}) does not match", name_, index, index * format_.rows_per_block);
    checked_[b] = true;
  }
  return bytes;
}

TeacherRow TeacherStore::row(int64_t index) const {
  if (index < 0 || index >= rows_) fail("{}: row {} is asked for, and there are {}", name_, index, rows_);
  const int64_t in_block = index / format_.rows_per_block, place = index % format_.rows_per_block;
  const auto bytes = block(in_block);
  if (in_block != at_block_ || place < at_row_) at_block_ = in_block, at_row_ = 0, at_byte_ = 0;
  while (true) {
    const size_t length = record_length(bytes, at_byte_, format_);
    if (length == 0) fail("{}: block {} ends within a record", name_, in_block);
    if (at_row_ == place) {
      TeacherRow row = decoded(bytes.subspan(at_byte_, length), format_);
      for (const int32_t id : row.ids) {
        if (id < 0 || id >= format_.vocabulary)
          fail("{}: row {} names token {} of a vocabulary of {}", name_, index, id, format_.vocabulary);
      }
      return row;
    }
    at_byte_ += length, ++at_row_;
  }
}

void TeacherStore::check() const {
  for (int64_t b = 0; b < std::ssize(checked_); ++b) block(b);
}

}  // namespace kullback
