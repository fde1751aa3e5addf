#include "kullback/io/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "kullback/base/error.h"
#include "kullback/io/jsonl.h"
#include "kullback/io/mapped_file.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A folder of its own for each test.
class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("kullback_files_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++count;
    return count;
  }

  template <class Action>
  static std::string refusal(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(Files, WritesWholeFiles) {
  write_file(folder_ / "a", "one");
  write_file(folder_ / "a", std::string(3000000, 'x'));
  EXPECT_EQ(read_text(folder_ / "a"), std::string(3000000, 'x'));
  write_file(folder_ / "empty", "");
  EXPECT_EQ(read_text(folder_ / "empty"), "");
  EXPECT_EQ(entries(), 2u) << "no temporary file is left";
}

TEST_F(Files, LeavesWhatWasThereWhenWritingFails) {
  write_file(folder_ / "a", "old");
  {
    NewFile file(folder_ / "a");
    file.append("new");
  }
  EXPECT_EQ(read_text(folder_ / "a"), "old");
  EXPECT_EQ(entries(), 1u);
  EXPECT_THAT(refusal([&] { write_file(folder_ / "none" / "a", "x"); }),
              AllOf(HasSubstr("none/a: cannot be written"), HasSubstr("No such file")));
  EXPECT_THAT(refusal([&] { write_file(folder_, "x"); }), HasSubstr("is a directory"));
}

// A limit on the size of files fails a write as a full disk does, halfway.
TEST_F(Files, SaysThatTheDiskIsFull) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refusal([&] { write_file(folder_ / "a", std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("/a: cannot be written: File too large"));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, SaysThatADeviceIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  // Rows of a log go straight to the file.
  JsonlWriter writer("/dev/full");
  EXPECT_THAT(refusal([&] {
                writer.append({{"loss", 1.0}});
              }),
              HasSubstr("/dev/full: cannot be written: No space left on device"));
}

TEST_F(Files, ReadsOnlyFiles) {
  EXPECT_THAT(refusal([&] { read_text(folder_ / "none"); }), HasSubstr("none: no such file"));
  EXPECT_THAT(refusal([&] { read_text(folder_); }), HasSubstr("is a directory"));
}

TEST_F(Files, MapsFiles) {
  write_file(folder_ / "a", "hello");
  const MappedFile file = MappedFile::open(folder_ / "a");
  ASSERT_EQ(file.size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  write_file(folder_ / "empty", "");
  EXPECT_THAT(refusal([&] { MappedFile::open(folder_ / "empty"); }), HasSubstr("empty: is empty"));
  EXPECT_THAT(refusal([&] { MappedFile::open(folder_); }), HasSubstr("is a directory"));
  EXPECT_THAT(refusal([&] { MappedFile::open(folder_ / "none"); }), HasSubstr("no such file"));
  mkfifo((folder_ / "pipe").c_str(), 0600);
  EXPECT_THAT(refusal([&] { MappedFile::open(folder_ / "pipe"); }), HasSubstr("is not a regular file"))
      << "and does not wait for a writer";
}

TEST_F(Files, MakesFoldersInOneStep) {
  const fs::path target = folder_ / "x" / "y" / "run";
  {
    NewFolder made(target);
    write_file(made.path() / "a", "1");
    EXPECT_FALSE(fs::exists(target));
    made.commit();
  }
  EXPECT_EQ(read_text(target / "a"), "1");
  EXPECT_THAT(refusal([&] { NewFolder again(target); }), HasSubstr("run: the output folder exists and is not empty"));
  EXPECT_THAT(refusal([&] { NewFolder file(target / "a"); }), HasSubstr("exists and is not a folder"));
}

TEST_F(Files, LeavesNothingOfAFolderThatFailed) {
  {
    NewFolder made(folder_ / "x" / "y" / "run/");
    write_file(made.path() / "a", "1");
  }
  EXPECT_EQ(entries(), 0u) << "nor the folders made on the way";
  fs::create_directory(folder_ / "run");
  {
    NewFolder made(folder_ / "run");
    write_file(made.path() / "a", "1");
    made.commit();
  }
  EXPECT_EQ(read_text(folder_ / "run" / "a"), "1") << "an empty folder may be there";
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, FindsTheCacheFolder) {
  const auto keep = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto put = [](const char* name, const std::optional<std::string>& value) {
    if (value)
      setenv(name, value->c_str(), 1);
    else
      unsetenv(name);
  };
  const auto own = keep("KULLBACK_CACHE"), xdg = keep("XDG_CACHE_HOME"), home = keep("HOME");
  put("KULLBACK_CACHE", "/a");
  put("XDG_CACHE_HOME", "/b");
  put("HOME", "/c");
  EXPECT_EQ(cache_folder(), "/a");
  put("KULLBACK_CACHE", "");
  EXPECT_EQ(cache_folder(), "/b/kullback");
  put("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(cache_folder(), "/c/.cache/kullback");
  put("HOME", std::nullopt);
  EXPECT_THROW(cache_folder(), Error);
  put("KULLBACK_CACHE", own);
  put("XDG_CACHE_HOME", xdg);
  put("HOME", home);
}

// The examples of FIPS 180-4 and its test vectors.
TEST(Sha256, EqualsTheStandardsExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

class Jsonl : public Files {};

TEST_F(Jsonl, ReadsRowsWithTheirLines) {
  write_file(folder_ / "a", "\xef\xbb\xbf{\"a\":1}\r\n\n   \n{\"b\":\"x\\ny\"}");
  std::vector<std::int64_t> lines;
  std::vector<std::string> rows;
  read_jsonl(folder_ / "a", [&](std::int64_t line, const Json& row) {
    lines.push_back(line);
    rows.push_back(row.dump());
  });
  EXPECT_THAT(lines, ElementsAre(1, 4));
  EXPECT_THAT(rows, ElementsAre("{\"a\":1}", "{\"b\":\"x\\ny\"}"));
}

TEST_F(Jsonl, NamesTheLineAtFault) {
  const auto message = [&](std::string_view text) {
    write_file(folder_ / "a", text);
    return refusal([&] { read_jsonl(folder_ / "a", [](std::int64_t, const Json&) {}); });
  };
  EXPECT_THAT(message("{\"a\":1}\n{\"a\":}\n"),
              AllOf(HasSubstr("/a: line 2, column 6: not JSON: "), HasSubstr("unexpected '}'")));
  EXPECT_THAT(message("{\"a\":1\n"), HasSubstr("line 1, column 7: not JSON"));
  EXPECT_THAT(message("{}\n\n[1]\n"), HasSubstr("line 3: not a JSON object but of type array"));
  EXPECT_THAT(message("{\"a\":\"\xff\"}\n"), HasSubstr("line 1, column 7: not JSON"));
  EXPECT_THAT(message("{\"a\":1e999}\n"), HasSubstr("line 1: not JSON"));
  EXPECT_THAT(message("{} {}\n"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(refusal([&] { read_jsonl(folder_ / "none", [](std::int64_t, const Json&) {}); }),
              HasSubstr("none: no such file"));
  EXPECT_THAT(refusal([&] { read_jsonl(folder_, [](std::int64_t, const Json&) {}); }), HasSubstr("is a directory"));
}

TEST_F(Jsonl, NamesThePlaceInADocument) {
  write_file(folder_ / "a.json", "{\n  \"a\": [1,\n 2 3]\n}");
  EXPECT_THAT(refusal([&] { read_json(folder_ / "a.json"); }), HasSubstr("a.json: line 3, column 4: not JSON: "));
  EXPECT_EQ(parse_json("{\"b\":1,\"a\":2}", "x").dump(), "{\"b\":1,\"a\":2}") << "in the order written";
}

TEST_F(Jsonl, AppendsRows) {
  for (int i = 0; i < 2; ++i) {
    JsonlWriter writer(folder_ / "a");
    writer.append({{"step", i}, {"text", "\xff"}});
    EXPECT_THAT(read_text(folder_ / "a"), HasSubstr("{\"step\":" + std::to_string(i)))
        << "there before the writer is closed";
  }
  std::int64_t rows = 0;
  read_jsonl(folder_ / "a", [&](std::int64_t, const Json& row) { EXPECT_EQ(row["step"], rows++); });
  EXPECT_EQ(rows, 2);
  EXPECT_THAT(refusal([&] { JsonlWriter writer(folder_ / "none" / "a"); }), HasSubstr("none/a: cannot be written"));
}

TEST(RemoveUnfinished, TakesOnlyWhatWasBeingWrittenAside) {
  const fs::path folder = fs::path(::testing::TempDir()) / "unfinished";
  fs::remove_all(folder);
  fs::create_directories(folder / "checkpoints/.step-2.partial-12-0");
  write_file(folder / "checkpoints/.step-2.partial-12-0/state.json", "{}");
  write_file(folder / "partial-notes.txt", "kept");
  fs::copy_file(folder / "partial-notes.txt", folder / ".config.toml.partial-12-1");
  remove_unfinished(folder);
  EXPECT_TRUE(fs::exists(folder / "partial-notes.txt"));
  EXPECT_FALSE(fs::exists(folder / ".config.toml.partial-12-1"));
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));
  remove_unfinished(folder / "there is no such folder");
}

}  // namespace
}  // namespace kullback
