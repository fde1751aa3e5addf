// `kullback distill` and `kullback teacher` from end to end on random models.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Files {
  fs::path folder;
  std::string teacher, other, data;
};

Files prepared(const std::string& name) {
  Files files{.folder = fresh_folder(name), .teacher = "", .other = "", .data = ""};
  files.teacher = (files.folder / "teacher").string(), files.other = (files.folder / "other").string();
  save_model(tiny_model(1), files.teacher);
  save_model(tiny_model(2), files.other);
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += fmt::format("{{\"prompt\": \"Question {}?\", \"completion\": \"Yes, {}.\"}}\n", i, i);
  files.data = written(files.folder / "rows.jsonl", rows);
  return files;
}

double after(const fs::path& run, const char* figure, const char* when = "after") {
  return read_json(run / "evaluation.json").at(when).at(figure)[0].get<double>();
}

TEST(DistillCommand, MakesAStudentOfTheTeachersLayersAndTrainsIt) {
  const Files files = prepared("distill-made");
  const fs::path out = files.folder / "run";
  const Outcome outcome = run_program(fmt::format(
      "distill --teacher {} --student-layers every-2 --data {} --output {} --epochs 10 --learning-rate 0.003 "
      "--samples 1 --sample-tokens 4",
      files.teacher, files.data, out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* figure : {"forward_kl", "backward_kl", "teacher_tv", "js"})
    EXPECT_LT(after(out, figure), after(out, figure, "before")) << figure;
  EXPECT_GT(after(out, "perplexity"), 1);
  EXPECT_TRUE(read_json(out / "evaluation.json").at("after").contains("calibration_error"));
  EXPECT_GT(read_json(out / "evaluation.json").at("teacher_parameters").get<double>(),
            read_json(out / "evaluation.json").at("student_parameters").get<double>());
  EXPECT_THAT(contents(out / "report.html"),
              AllOf(HasSubstr("by place in the response"), HasSubstr("Calibration of the student")));
  const Model student = load_model((out / "model").string());
  EXPECT_EQ(student.config().layers, 1);
}

TEST(DistillCommand, OnTheStudentsOwnResponsesWithALimitAndTwoTeachers) {
  const Files files = prepared("distill-own");
  const fs::path out = files.folder / "run";
  const Outcome outcome = run_program(fmt::format(
      "distill --method kd --source student --response-tokens 5 --divergence js --teacher {0},{1} --teacher-weight 3,1 "
      "--student {1} --data {2} --output {3} --epochs 24 --limit \"kl<=2\" --learning-rate 0.01 --samples 0",
      files.teacher, files.other, files.data, out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_LT(after(out, "js"), after(out, "js", "before"));
  EXPECT_TRUE(fs::exists(out / "adapter/adapter_config.json"));
  EXPECT_GT(read_json(out / "evaluation.json").at("sampling_share").get<double>(), 0);
  EXPECT_THAT(contents(out / "metrics.jsonl"), AllOf(HasSubstr("train/limit/kl"), HasSubstr("train/source/student")));
  EXPECT_THAT(contents(out / "report.html"), HasSubstr("the mixture of the probabilities of 0.75 of"));
}

TEST(DistillCommand, ARecordedTeacherAndAComparison) {
  const Files files = prepared("distill-record");
  const std::string store = (files.folder / "rows.teacher").string();
  const Outcome recorded = run_program(fmt::format("teacher record --teacher {} --data {} --output {} --k 100 --p 0.99",
                                                   files.teacher, files.data, store));
  ASSERT_EQ(recorded.status, 0) << recorded.error;
  EXPECT_THAT(recorded.out, AllOf(HasSubstr("measured"), HasSubstr("at most")));
  const Outcome inspected = run_program("teacher inspect " + store + " --row 2");
  EXPECT_EQ(inspected.status, 0) << inspected.error;
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("checksums       all right"), HasSubstr("Row 2")));

  const fs::path out = files.folder / "compared";
  const std::string arguments = fmt::format(
      "distill --method kd,pd --kd-ratio 0.8 --alpha-schedule constant --teacher-record {} --student {} --data {} "
      "--output {} --train full --learning-rate 0.003 --epochs 8 --samples 0",
      store, files.other, files.data, out.string());
  const Outcome compared = run_program(arguments);
  ASSERT_EQ(compared.status, 0) << compared.error;
  EXPECT_THAT(compared.out, AllOf(HasSubstr("kd"), HasSubstr("pd"), HasSubstr("perplexity")));
  for (const char* method : {"kd", "pd"})
    EXPECT_LT(after(out / method, "forward_kl"), after(out / method, "forward_kl", "before")) << method;
  EXPECT_EQ(read_json(out / "comparison.json").size(), 2U);
  EXPECT_TRUE(fs::exists(out / "comparison.html"));
  EXPECT_THAT(contents(out / "kd" / "config.toml"),
              AllOf(HasSubstr("kd-ratio = 0.8"), Not(HasSubstr("alpha-schedule"))));

  // A comparison that was stopped goes on: what is complete is not done again.
  const auto time = fs::last_write_time(out / "kd" / "report.html");
  fs::remove_all(out / "pd");
  const Outcome again = run_program("distill --resume " + out.string());
  EXPECT_EQ(again.status, 0) << again.error;
  EXPECT_EQ(fs::last_write_time(out / "kd" / "report.html"), time);
  EXPECT_TRUE(fs::exists(out / "pd" / "report.html"));
}

TEST(DistillCommand, RefusesBadInputBeforeAnythingIsWritten) {
  const Files files = prepared("distill-refused");
  const fs::path out = files.folder / "run";
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome =
        run_program(fmt::format("distill --output {} --data {} {}", out.string(), files.data, arguments));
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.error, HasSubstr(why)) << arguments;
    EXPECT_FALSE(fs::exists(out)) << arguments;
  };
  refused("--student x", "--teacher is missing");
  refused("--teacher x", "--student is missing");
  refused("--teacher x --student y --student-layers every-2", "leave out --student");
  refused("--teacher x --student-layers every-2 --train lora", "--train full");
  refused("--teacher x,y --teacher-weight 1 --student z", "1 weights are given for 2 teachers");
  refused("--teacher x --student y --method kkd", "did you mean");
  refused("--teacher x --student y --method kd,kd", "named twice");
  refused("--teacher x --student y --no-detach-teacher", "--detach-teacher");
  refused(fmt::format("--teacher {} --student-layers 0,7", files.teacher), "there is no layer 7");
  refused(fmt::format("--teacher {} --student {} --text-data {}", files.teacher, files.other, files.data),
          "takes no plain text");
  refused(fmt::format("--teacher-record {} --student {}", files.data, files.other), "KULLTL01");
  EXPECT_EQ(run_program("teacher recrd").status, 2);
}

}  // namespace
}  // namespace kullback::test
