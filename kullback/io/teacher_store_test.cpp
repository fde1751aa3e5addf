#include "kullback/io/teacher_store.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/io/files.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

fs::path fresh(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / name;
  fs::remove(path), fs::remove(path.string() + ".partial");
  return path;
}

std::vector<TeacherRow> random_rows(int count) {
  std::vector<TeacherRow> rows;
  RandomStream random(1, "rows");
  for (int n = 0; n < count; ++n) {
    TeacherRow row;
    double logp = -random.uniform();
    for (uint64_t i = 0; i <= random.below(9); ++i) {
      row.ids.push_back(static_cast<int32_t>(random.below(1000)));
      row.logps.push_back(logp);
      logp -= 5 * random.uniform();
    }
    row.label_logp = -10 * random.uniform();
    rows.push_back(row);
  }
  return rows;
}

void expect_rows(const TeacherStore& store, const std::vector<TeacherRow>& rows) {
  ASSERT_EQ(store.rows(), std::ssize(rows));
  for (const size_t i : {rows.size() - 1, size_t{0}, rows.size() / 2, size_t{3}, size_t{2}}) {
    const TeacherRow row = store.row(static_cast<int64_t>(i));
    EXPECT_EQ(row.ids, rows[i].ids);
    EXPECT_EQ(row.logps, stored_row(rows[i], store.format()).logps);
    EXPECT_EQ(row.label_logp, static_cast<double>(static_cast<float>(rows[i].label_logp)));
    for (size_t k = 0; k < row.logps.size(); ++k)
      EXPECT_NEAR(row.logps[k], rows[i].logps[k], store.format().step() / 2 + 1e-6);
  }
}

TEST(TeacherStore, GivesBackWhatWasWritten) {
  for (const int64_t block : {1, 4, 7, 1000}) {
    const fs::path path = fresh("rows.teacher");
    const std::vector<TeacherRow> rows = random_rows(29);
    TeacherStoreWriter writer(path, {.vocabulary = 1000, .k = 9, .labels = true, .rows_per_block = block});
    for (const TeacherRow& row : rows) writer.append(row);
    EXPECT_FALSE(fs::exists(path));
    writer.finish();
    const TeacherStore store = TeacherStore::open(path);
    store.check();
    expect_rows(store, rows);
    EXPECT_EQ(store.format().id_bits, 10);
    EXPECT_THROW(store.row(29), Error);
  }
}

TEST(TeacherStore, AnInterruptedOneGoesOn) {
  const fs::path path = fresh("cut.teacher");
  const TeacherStoreFormat format{.vocabulary = 1000, .k = 9, .labels = true, .rows_per_block = 4};
  const std::vector<TeacherRow> rows = random_rows(29);
  {
    TeacherStoreWriter writer(path, format);
    for (int i = 0; i < 14; ++i) writer.append(rows[static_cast<size_t>(i)]);
  }
  std::ofstream(path.string() + ".partial", std::ios::app | std::ios::binary) << "half a block";
  TeacherStoreWriter writer(path, format);
  ASSERT_EQ(writer.rows(), 12);  // whole blocks
  for (size_t i = 12; i < rows.size(); ++i) writer.append(rows[i]);
  writer.finish();
  expect_rows(TeacherStore::open(path), rows);
  {
    TeacherStoreWriter other(path, format);
    other.append(rows[0]);
  }
  TeacherStoreFormat different = format;
  different.provenance[3] = 1;
  EXPECT_THROW(TeacherStoreWriter(path, different), Error);
}

TEST(TeacherStore, DamageIsNamed) {
  const fs::path path = fresh("damaged.teacher");
  TeacherStoreWriter writer(path, {.vocabulary = 1000, .k = 9, .rows_per_block = 4});
  for (const TeacherRow& row : random_rows(11)) writer.append(row);
  writer.finish();
  const std::string good = read_text(path);
  for (size_t at = 0; at < good.size(); ++at) {
    // The header's own description of vocabulary, p, k, codes and provenance is no one's business but its reader's.
    if ((at >= 12 && at < 16) || (at >= 24 && at < 36) || (at >= 48 && at < 64)) continue;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_THROW(TeacherStore::open(path).check(), Error) << at;
  }
  for (const size_t size : {size_t{1}, size_t{63}, size_t{64}, good.size() - 1}) {
    std::ofstream(path, std::ios::binary) << good.substr(0, size);
    EXPECT_THROW(TeacherStore::open(path), Error) << size;
  }
}

TEST(TeacherStore, ATokenBeyondTheCodesEndsTheRow) {
  const TeacherStoreFormat small{.vocabulary = 10, .k = 9, .value_bits = 8, .delta_exp = 4};  // up to 15.9 nats
  const TeacherRow row{.ids = {3, 1, 2, 7}, .logps = {-0.1, -3, -16.2, -16.3}};
  EXPECT_EQ(stored_row(row, small).ids, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(store_codes(row, small), (std::vector<int64_t>{0, 46}));
}

}  // namespace
}  // namespace kullback
