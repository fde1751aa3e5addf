// kullback check of what transformers makes of tiny checkpoints: it passes, and it fails where a number is not right.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckArchitecture : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kullback_check_architecture_" + std::to_string(getpid()));
    fs::copy(KULLBACK_FIXTURES "/architectures/gpt-neox", folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path golden() const { return folder_ / "golden.json"; }
  void change(const char* file, const std::function<void(Json&)>& how) const {
    Json json = read_json(folder_ / file);
    how(json);
    write_file(folder_ / file, json.dump());
  }
  std::string failure() const {
    for (const CheckResult& result : check_file(golden()).results) {
      if (!result.passed) return result.name;
    }
    return "none";
  }
  std::string message() const {
    try {
      check_file(golden());
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  }

  fs::path folder_;
};

TEST_F(CheckArchitecture, PassesAsItIs) {
  const CheckReport report = check_file(golden());
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.kind, "architecture");
  EXPECT_GE(report.results.size(), 7u);
  EXPECT_TRUE(check_file(KULLBACK_FIXTURES "/architectures/llama-lora/golden.json").passed());
}

TEST_F(CheckArchitecture, FailsWhereANumberIsWrong) {
  const Json right = read_json(golden());
  const auto failing = [&](const std::function<void(Json&)>& how) {
    change("golden.json", how);
    const std::string name = failure();
    change("golden.json", [&](Json& json) { json = right; });
    return name;
  };
  EXPECT_EQ(failing([](Json& json) { json["logits"]["data"][700] = 1.5; }), "logits");
  EXPECT_EQ(failing([](Json& json) { json["loss"] = 1.5; }), "loss");
  EXPECT_EQ(failing([](Json& json) { json["grad_norms"]["gpt_neox.embed_in.weight"] = 1.5; }), "gradient norms");
  EXPECT_EQ(failing([](Json& json) { json["grad_norms"].erase("gpt_neox.embed_in.weight"); }), "gradient norms");
  EXPECT_EQ(failing([](Json& json) { json["greedy"][3] = 0; }), "greedy tokens");
  change("config.json", [](Json& json) { json["use_parallel_residual"] = false; });
  EXPECT_EQ(failure(), "logits");
}

TEST_F(CheckArchitecture, SaysWhatIsMissing) {
  change("golden.json", [](Json& json) { json.erase("prompt"); });
  EXPECT_THAT(message(), HasSubstr("'prompt'"));
  change("config.json", [](Json& json) { json.erase("hidden_size"); });
  EXPECT_THAT(message(), HasSubstr("no key 'hidden_size'"));
  change("config.json", [](Json& json) { json["model_type"] = "gpt_neo"; });
  EXPECT_THAT(message(), HasSubstr("did you mean \"gpt_neox\""));
}

}  // namespace
}  // namespace kullback
