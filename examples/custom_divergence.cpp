// A divergence of one's own in a run of distillation: a generator f, a loss, a registration, and the run that
// `kullback distill` would make.
#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <kullback/distill/run.h>
#include <kullback/lm/save.h>
#include <kullback/train/distillation.h>

#include "tiny_model.h"

using namespace kullback;

/// f(u) = (u - 1)^2 / (u + 1), which stays finite where either law has no mass.
const Divergence triangle =
    divergence("triangle", Generator{.value = [](double u) { return (u - 1) * (u - 1) / (u + 1); },
                                     .derivative = [](double u) { return 1 - 4 / ((u + 1) * (u + 1)); },
                                     .at_zero = 1,
                                     .slope_at_infinity = 1});
struct NoOptions {};
const Registered method{
    distillation_method<NoOptions>("triangle")
        .summary("Its mean over counted tokens")
        .loss([](const DistillationBatch& batch, const NoOptions&) {
          HeadStatistics
              weights;  // of each token's divergence, known before the walk: the gradient is made in the same one
          weights.divergences = {batch.mask.flatten().to(at::kDouble) / batch.tokens_in_step};
          const HeadRequest wanted{.divergences = {triangle.from_reference()}};
          return DistillationLoss{.value = head_loss(batch.student, batch.teacher, wanted, weights).loss};
        })};

int main() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "kullback-custom-divergence";
  std::filesystem::remove_all(folder);
  save_model(tiny_model(1), folder / "teacher");
  save_model(tiny_model(2), folder / "student");
  std::ofstream rows(folder / "rows.jsonl");
  for (int i = 0; i < 16; ++i) rows << fmt::format("{{\"text\": \"{} and {} make {}\"}}\n", i, i, 2 * i);
  rows.close();

  DistillJob job;
  job.method = &find_method("triangle");
  job.method_options = job.method->options->defaults();
  job.distill.teacher = {(folder / "teacher").string()};
  job.run.model = (folder / "student").string(), job.run.output = (folder / "run").string();
  job.run.train = RunOptions::Train::full;
  job.data.data = (folder / "rows.jsonl").string();
  job.loop.epochs = 20, job.optimizer.learning_rate = 3e-3;
  const LoopResult result = run_distillation(job).loop;
  const double before = result.before.at("forward_kl").value, after = result.after.at("forward_kl").value;
  fmt::print("KL(teacher || student) on held-out rows: {:.4f} before, {:.4f} after\n", before, after);
  return after < before ? 0 : 1;
}
