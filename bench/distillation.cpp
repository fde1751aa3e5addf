// A step of distillation beside the parts that it cannot do without, and a recorded teacher beside a live one: SmolLM2-135M's
// shape with random weights, so nothing to download.
//
//   build/bench/distillation [ROUNDS]     seconds of a `kd` step of 4 x 256 tokens for a student of half the layers, over those
//                                         of its parts alone, with the memory that the step needs beyond theirs, at two limits
//                                         of the head's memory; then the same step with recorded rows of a teacher of the
//                                         student's own size
//
// Rounds of the contestants alternate; each ratio is the median over the rounds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/smollm2_shape.h"
#include "kullback/base/random.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/counting_allocator_test.h"
#include "kullback/io/teacher_store.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/train/distillation_task.h"

namespace {

using at::Tensor;
using namespace kullback;

constexpr int64_t kRows = 4, kLength = 256, kVocabulary = 49152;

Model random_model(int64_t layers) {
  Model model;
  model.transformer = bench::random_model(layers);
  model.tokenizer = Tokenizer(byte_level_spec("bench", {}, {}));  // reads nothing here
  return model;
}

SupervisedData random_rows() {
  SupervisedData data{.path = "random", .examples = {}, .counts = {}};
  RandomStream stream(0, "tokens");
  for (int64_t row = 0; row < kRows; ++row) {
    Example example{.line = row + 1, .sequence = {.ids = {}, .response_begin = 1}, .prompt = {}, .text = {}};
    for (int64_t t = 0; t < kLength; ++t)
      example.sequence.ids.push_back(static_cast<int32_t>(stream.below(kVocabulary)));
    data.examples.push_back(example);
  }
  return data;
}

double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

test::CountingAllocator& memory() {
  static test::CountingAllocator counting;
  return counting;
}

int64_t peak_of(const std::function<void()>& run) {
  release_head_memory();
  memory().peak = memory().held.load();
  const int64_t before = memory().held;
  run();
  return memory().peak - before;
}

/// The student's pass forward and backward, the teacher's pass, and the four products of the two heads in large blocks.
struct Parts {
  const Transformer &student, &teacher;
  Ragged batch;
  Tensor space = at::empty({512, kVocabulary});

  Parts(const Transformer& small, const Transformer& big, const SupervisedData& data) : student(small), teacher(big) {
    std::vector<std::vector<int32_t>> sequences;
    for (const Example& e : data.examples) sequences.push_back(e.sequence.ids);
    batch = ragged(sequences);
  }

  void models() const {
    {
      const at::NoGradGuard no_grad;
      teacher.hidden(batch);
    }
    const Tensor hidden = student.hidden(batch);
    hidden.backward(at::ones_like(hidden));
  }
  void heads() const {
    const at::NoGradGuard no_grad;
    const Tensor hidden = at::ones({kRows * kLength, 576});
    Tensor into = at::zeros_like(student.head);
    for (int64_t first = 0; first < hidden.size(0); first += space.size(0)) {
      const Tensor h = hidden.narrow(0, first, space.size(0));
      Tensor z = space;
      at::mm_out(z, h, teacher.head.t());
      at::mm_out(z, h, student.head.t());
      at::mm(z, student.head);
      into.addmm_(z.t(), h);
    }
  }
};

struct Step {
  const Method& method = find_method("kd");
  std::shared_ptr<void> options = method.options->defaults();
  Teacher teacher;
  DistillationTask task;

  Step(Transformer& student, Teacher given, const SupervisedData& data)
      : teacher(std::move(given)),
        task(student, teacher, Reference{}, method, options.get(), data, {}, {},
             DistillationSetup{.vocabulary = kVocabulary}) {}
  void operator()() {
    std::vector<int64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    task.before_step(0, 1, rows);
    task.accumulate(rows, rows, false);
  }
};

void clear(const Transformer& model) {
  for (NamedTensor& named : model.trainable()) named.tensor.mutable_grad() = Tensor();
}

/// A store of random rows as `kullback teacher record` keeps them: 50 tokens each.
RecordedRows recorded(const SupervisedData& data, const std::filesystem::path& path) {
  RandomStream stream(0, "rows");
  {
    TeacherStoreWriter writer(path, {.vocabulary = kVocabulary, .k = 50, .p = 1});
    TeacherRow row{.ids = std::vector<int32_t>(50), .logps = std::vector<double>(50)};
    for (int64_t i = 0; i < kRows * (kLength - 1); ++i) {
      const auto first = static_cast<int32_t>(stream.below(kVocabulary - 50 * 900));
      for (int32_t k = 0; k < 50; ++k) {
        row.ids[static_cast<size_t>(k)] = first + 900 * k;
        row.logps[static_cast<size_t>(k)] = -3 - 0.1 * k;
      }
      writer.append(row);
    }
    writer.finish();
  }
  RecordedRows rows{.store = std::make_shared<TeacherStore>(TeacherStore::open(path)), .first_row = {}};
  for (const Example& e : data.examples) rows.first_row[e.line] = (e.line - 1) * (kLength - 1);
  return rows;
}

}  // namespace

int main(int count, char** words) {
  c10::SetCPUAllocator(&memory(), 100);
  const int rounds = count > 1 ? std::atoi(words[1]) : 5;
  const SupervisedData data = random_rows();
  std::vector<Model> teachers;
  teachers.push_back(random_model(30));
  Model small = random_model(15);
  small.transformer.set_trainable(true);
  const Parts parts(small.transformer, teachers[0].transformer, data);
  std::vector<Model> live;
  live.push_back(teachers[0]);
  Step step(small.transformer, Teacher(std::move(live), {1}), data);

  const auto models = [&] { parts.models(), clear(small.transformer); };
  const auto whole = [&] { step(), clear(small.transformer); };
  models(), parts.heads();
  const auto least = static_cast<double>(peak_of(models)), gradient = static_cast<double>(parts.student.head.nbytes());
  for (const int64_t mib : {128, 64}) {
    set_head_memory(mib << 20);
    whole();
    const auto most = static_cast<double>(peak_of(whole));
    std::vector<double> ratio, alone, ours;
    for (int round = 0; round < rounds; ++round) {
      alone.push_back(seconds(models) + seconds([&] { parts.heads(); }));
      ours.push_back(seconds(whole));
      ratio.push_back(ours.back() / alone.back());
    }
    std::printf(
        "kd step, 4 x 256 tokens, 15 of 30 layers, --head-memory %d: %.2f s; its parts alone %.2f s; ratio %.2f\n",
        static_cast<int>(mib), median(ours), median(alone), median(ratio));
    std::printf("memory beyond that of the two models' passes and the gradient of the head: %.0f MiB\n",
                (most - least - gradient) / (1 << 20));
  }
  set_head_memory(128 << 20);

  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("kullback-bench-{}.teacher", getpid());
  std::vector<Model> same;
  same.push_back(random_model(15));
  Step with_live(small.transformer, Teacher(std::move(same), {1}), data);
  Step with_record(small.transformer, Teacher(recorded(data, file)), data);
  const auto one = [&](Step& s) { return seconds([&] { s(), clear(small.transformer); }); };
  one(with_live), one(with_record);
  std::vector<double> faster;
  for (int round = 0; round < rounds; ++round) {
    const double recorded_time = one(with_record);
    faster.push_back(one(with_live) / recorded_time);
  }
  std::filesystem::remove(file);
  std::printf("a live teacher of the student's own size over a recorded one: %.2f\n", median(faster));
}
