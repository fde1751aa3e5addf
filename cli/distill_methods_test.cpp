// The on-policy, pairwise and cross-tokenizer methods of `kullback distill` from end to end on random models.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// The tiny model with tokens for what its texts often say: another tokenizer and a larger vocabulary.
Model merged_model(uint64_t seed) {
  Model model = tiny_model(seed);
  BpeSpec spec = byte_level_spec("merged", {"Y e", "Ye s", "i o", "io n"}, {"<|im_start|>", "<|im_end|>"});
  spec.special.bos = 260, spec.special.eos = 261;
  Config config = model.config();
  config.vocabulary_size = 262, config.bos = 260, config.eos = 261, config.layers = 3;
  model.transformer = random_transformer(config, seed, 0.2, at::kFloat);
  model.tokenizer = Tokenizer(spec);
  model.generation.stop_ids = {261};
  return model;
}

struct Files {
  fs::path folder;
  std::string teacher, student, data, text;
};

Files prepared(const std::string& name, const Model& teacher) {
  Files files{.folder = fresh_folder(name), .teacher = "", .student = "", .data = "", .text = ""};
  files.teacher = (files.folder / "teacher").string(), files.student = (files.folder / "student").string();
  save_model(teacher, files.teacher);
  save_model(tiny_model(2), files.student);
  std::string rows, texts;
  for (int i = 0; i < 12; ++i) {
    rows += fmt::format("{{\"prompt\": \"Question {}?\", \"completion\": \"Yes, {}.\"}}\n", i, i);
    texts += fmt::format("{{\"text\": \"Plain text of number {}.\"}}\n", i);
  }
  files.data = written(files.folder / "rows.jsonl", rows);
  files.text = written(files.folder / "texts.jsonl", texts);
  return files;
}

double figure(const fs::path& run, const char* name, const char* when) {
  return read_json(run / "evaluation.json").at(when).at(name)[0].get<double>();
}

struct MethodRun {
  const char* method;
  const char* arguments;
  const char* falls;   ///< a held-out figure that has to fall; empty: none has
  const char* logged;  ///< stands in metrics.jsonl
};

std::string test_name(const testing::TestParamInfo<MethodRun>& info) {
  std::string name = info.param.method;
  std::erase(name, '-');
  return fmt::format("{}_{}", name, info.index);
}

Outcome distilled(const Files& files, const MethodRun& run, const fs::path& out, const std::string& more = "") {
  return run_program(fmt::format(
      "distill --method {} --teacher {} --student {} --data {} --output {} --train full --epochs 6 --batch-size 3 "
      "--learning-rate 0.003 --response-tokens 6 --samples 0 {} {}",
      run.method, files.teacher, files.student, files.data, out.string(), run.arguments, more));
}

class OneTokenizer : public testing::TestWithParam<MethodRun> {};

TEST_P(OneTokenizer, TrainsFromTheCommandLine) {
  const MethodRun& run = GetParam();
  const Files files = prepared(fmt::format("method-{}", run.method), tiny_model(1));
  const fs::path out = files.folder / "run";
  const bool reads_text = std::string(run.arguments).find("coef 0.1") != std::string::npos;
  const std::string text = reads_text ? fmt::format("--text-data {}", files.text) : std::string();
  const Outcome outcome = distilled(files, run, out, text);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(contents(out / "metrics.jsonl"), HasSubstr(run.logged));
  if (*run.falls != 0) {
    EXPECT_LT(figure(out, run.falls, "after"), figure(out, run.falls, "before"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, OneTokenizer,
    testing::Values(
        MethodRun{"gkd", "--lambda 1 --beta 0.5 --max-new-tokens 6", "js", "train/source/student"},
        MethodRun{"gkd", "--gkd-alpha 0.9 --max-new-tokens 6", "js", "train/rl_loss"},
        MethodRun{"gkd", "--gkd-alpha 0.5 --reward length:words --max-new-tokens 6", "", "train/reward"},
        MethodRun{"gkd", "--lambda 0 --sequence-kd", "js", "train/source/teacher"},
        MethodRun{"distillm", "--lm-coef 0.1 --init-threshold 0.9 --capacity 6 --kd-ratio 0.9", "forward_kl",
                  "train/replayed"},
        MethodRun{"minillm", "--lm-coef 0.1 --num-rollouts 7 --ppo-epochs 2", "backward_kl",
                  "train/reverse_kl_estimate"},
        MethodRun{"minillm", "--whiten all --top-p 0.9 --top-k 50 --reward-to-go exclusive --lm-coef 0", "backward_kl",
                  "train/clip_fraction"},
        MethodRun{"dpkd", "--lm-coef 0.1", "", "train/reward_margin"},
        MethodRun{"dpkd", "--form token --kd-ratio 1 --lm-coef 0", "", "train/agreement"},
        MethodRun{"skd",
                  "--block 3 --student-temperature 1 --student-top-p 1 --teacher-temperature 1 --teacher-top-p 1",
                  "forward_kl", "train/source/both"},
        MethodRun{"skd", "--accept top_p --accept-top-p 0.5 --mixed-ratio 0.5 --divergence js", "js", "train/kd_loss"},
        MethodRun{"plad", "--reg-weight 0.1 --length-normalise", "", "train/ranking_accuracy"},
        MethodRun{"plad", "--loss-type margin --beta 5 --filter-by-score", "", "train/kept_pairs"},
        MethodRun{"akl", "--head-rule reach", "forward_kl", "train/loss"}, MethodRun{"atkd", "", "", "train/hard_tkd"},
        MethodRun{"atkd", "--sample-source mix_token", "", "train/source/both"},
        MethodRun{"atkd", "--sample-source student --split topk", "", "train/source/student"},
        MethodRun{"dac-kl", "", "", "train/loss"}, MethodRun{"self-evolution-kd", "", "", "train/loss"},
        MethodRun{"pesf-kd", "", "", "train/loss"}, MethodRun{"swing", "", "", "train/loss"},
        MethodRun{"sinkd", "--rows sequence --problem-rows 8", "", "train/loss"},
        MethodRun{"moment-matching", "", "", "train/loss"}),
    test_name);

class TwoTokenizers : public testing::TestWithParam<MethodRun> {};

TEST_P(TwoTokenizers, TrainFromTheCommandLine) {
  const MethodRun& run = GetParam();
  const Files files = prepared(fmt::format("tokenizers-{}", run.method), merged_model(1));
  const fs::path out = files.folder / "run";
  const Outcome outcome = distilled(files, run, out);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(contents(out / "metrics.jsonl"), HasSubstr(run.logged));
  if (*run.falls != 0) {
    EXPECT_LT(figure(out, run.falls, "after"), figure(out, run.falls, "before"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, TwoTokenizers,
    testing::Values(MethodRun{"uld", "", "", "train/uld_loss"},
                    MethodRun{"uld", "--top-m 20 --skip-teacher-last", "", "train/uld_loss"},
                    MethodRun{"reduced-vocab", "", "perplexity", "train/kl_loss"},
                    MethodRun{"reduced-vocab", "--align-logits reduce --pool last", "perplexity", "train/aligned_rows"},
                    MethodRun{"reduced-vocab", "--align-logits reduce_map --align-hidden match --alpha-mse 0.1",
                              "perplexity", "train/hidden_loss"},
                    MethodRun{"reduced-vocab",
                              "--align-hidden reduce --hidden-loss contrastive --alpha-con 0.1 --layer-merge skip",
                              "perplexity", "train/hidden_loss"}),
    test_name);

TEST(OnPolicyMethods, RefuseWhatCannotBe) {
  const Files files = prepared("methods-refused", merged_model(1));
  const fs::path out = files.folder / "run";
  const auto refused = [&](const MethodRun& run, const char* why) {
    const Outcome outcome = distilled(files, run, out);
    EXPECT_EQ(outcome.status, 2) << run.method << " " << run.arguments;
    EXPECT_THAT(outcome.error, HasSubstr(why)) << run.arguments;
    EXPECT_FALSE(fs::exists(out)) << run.arguments;
  };
  refused({"gkd", "--lambda 2", "", ""}, "--lambda");
  refused({"minillm", "--teacher-mix 1", "", ""}, "--teacher-mix");
  refused({"reduced-vocab", "--align-hidden match", "", ""}, "--align-hidden");
  refused({"reduced-vocab", "--alpha-con 0.1", "", ""}, "--align-hidden");
  refused({"gkd", "--reward length", "", ""}, "--gkd-alpha");
  refused({"gkd", "--gkd-alpha 0.5 --reward lenght", "", ""}, "length");
  refused({"kd,swing", "--privacy memory", "", ""}, "--other-model");  // before the first of both begins
}

}  // namespace
}  // namespace kullback::test
