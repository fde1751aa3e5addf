#include "kullback/train/processes.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#if __has_include(<gloo/algorithm.h>)
#define USE_C10D_GLOO 1  // LibTorch's headers want to be told
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/base/parse.h"

namespace kullback {

using at::Tensor;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The first of these variables that is set, as a whole number; `fallback` where none is.
int64_t environment_number(std::initializer_list<const char*> names, int64_t fallback) {
  for (const char* name : names) {
    const std::string text = environment(name);
    if (text.empty()) continue;
    const auto number = parsed_number(text);
    if (!number || *number != std::floor(*number) || *number < 0)
      fail("environment variable {}: \"{}\" is not a whole number", name, text);
    return static_cast<int64_t>(*number);
  }
  return fallback;
}

}  // namespace

#ifdef USE_C10D_GLOO

struct Processes::Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;

  Group(int64_t rank, int64_t count) {
    const std::string host = environment("MASTER_ADDR").empty() ? "127.0.0.1" : environment("MASTER_ADDR");
    const int64_t port = environment_number({"MASTER_PORT"}, 29500);
    // torchrun's own agent keeps the store; else the first process does.
    const bool agent = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    try {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(port);
      options.isServer = rank == 0 && !agent;
      options.numWorkers = static_cast<size_t>(count);
      options.timeout = std::chrono::minutes(5);
      store = c10::make_intrusive<c10d::TCPStore>(host, options);
      store = c10::make_intrusive<c10d::PrefixStore>(
          fmt::format("kullback/{}", environment_number({"TORCHELASTIC_RESTART_COUNT"}, 0)), store);
      auto gloo_options = c10d::ProcessGroupGloo::Options::create();
      gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
      // A process that has ended is noticed at once by its closed connection; one that is merely slow is waited for.
      gloo_options->timeout = std::chrono::hours(2);
      gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank), static_cast<int>(count),
                                                         gloo_options);
    } catch (const std::exception& error) {
      fail("process {} of {}: the others cannot be reached at {}:{}", rank + 1, count, host, port);
    }
  }

  [[noreturn]] static void lost(const std::exception&) {
    fail("another process of this run has ended, and its message says why; this one stops too");
  }

  c10::intrusive_ptr<c10d::Work> start_sum(Tensor& tensor) {
    std::vector<Tensor> tensors{tensor};
    try {
      return gloo->allreduce(tensors);
    } catch (const std::exception& error) {
      lost(error);
    }
  }
  static void finish(const c10::intrusive_ptr<c10d::Work>& work) {
    try {
      work->wait();
    } catch (const std::exception& error) {
      lost(error);
    }
  }
};

#else

struct Processes::Group {
  struct Work {};
  Group(int64_t, int64_t count) {
    fail("{} processes are asked for, and this build has no c10d (it needs Gloo's headers, Debian package libgloo-dev)",
         count);
  }
  std::shared_ptr<Work> start_sum(Tensor&) { return {}; }
  static void finish(const std::shared_ptr<Work>&) {}
};

#endif

Processes::Processes() {
  rank_ = environment_number({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
  count_ = environment_number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1);
  if (count_ < 1 || rank_ >= count_) fail("the environment says that this is process {} of {}", rank_ + 1, count_);
  if (count_ > 1) group_ = std::make_shared<Group>(rank_, count_);
}

const Processes& processes() {
  static const Processes& all = *new Processes();  // never destroyed: Gloo's threads outlive main's end
  return all;
}

std::pair<int64_t, int64_t> Processes::share(int64_t rows) const {
  return {rows * rank_ / count_, rows * (rank_ + 1) / count_};
}

std::vector<std::string> Processes::gather(const std::string& own) const {
  if (count_ == 1) return {own};
  // Sums of what is 0 everywhere but at one's own place: lengths first, then the texts themselves.
  const auto summed = [&](Tensor& tensor) { Group::finish(group_->start_sum(tensor)); };
  Tensor lengths = at::zeros({count_}, at::kLong);
  lengths[rank_] = static_cast<int64_t>(own.size());
  summed(lengths);
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  Tensor bytes = at::zeros({lengths.sum().item<int64_t>()}, at::kByte);
  int64_t begin = 0;
  for (int64_t i = 0; i < rank_; ++i) begin += length[i];
  std::memcpy(bytes.mutable_data_ptr<uint8_t>() + begin, own.data(), own.size());
  if (bytes.numel() > 0) summed(bytes);
  std::vector<std::string> texts;
  const char* at = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  for (int64_t i = 0; i < count_; at += length[i], ++i) texts.emplace_back(at, static_cast<size_t>(length[i]));
  return texts;
}

namespace {

// Numbers travel as their bytes: JSON has no NaN.
std::string packed(const std::vector<Figures>& rows) {
  Json json = Json::array();
  for (const Figures& row : rows) {
    Json one = Json::object();
    for (const auto& [name, mean] : row) {
      int64_t bits[2];
      std::memcpy(bits, &mean.sum, 8), std::memcpy(bits + 1, &mean.count, 8);
      one[name] = {bits[0], bits[1]};
    }
    json.push_back(std::move(one));
  }
  return json.dump();
}

std::vector<Figures> unpacked(const std::string& text) {
  std::vector<Figures> rows;
  for (const Json& one : Json::parse(text)) {
    Figures row;
    for (const auto& [name, value] : one.items()) {
      const int64_t bits[2] = {value[0].get<int64_t>(), value[1].get<int64_t>()};
      Mean& mean = row[name];
      std::memcpy(&mean.sum, bits, 8), std::memcpy(&mean.count, bits + 1, 8);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<Figures> Processes::joined(const std::vector<Figures>& own) const {
  if (count_ == 1) return own;
  std::vector<Figures> all;
  for (const std::string& text : gather(packed(own))) {
    for (Figures& row : unpacked(text)) all.push_back(std::move(row));
  }
  return all;
}

Figures Processes::sum(const Figures& own) const {
  if (count_ == 1) return own;
  Figures total;
  for (const Figures& part : joined({own})) add(total, part);
  return total;
}

bool Processes::any(bool own) const {
  if (count_ == 1) return own;
  Tensor flag = at::full({1}, own ? 1 : 0, at::kLong);
  Group::finish(group_->start_sum(flag));
  return flag.item<int64_t>() > 0;
}

void Processes::wait_for_all() const { any(false); }

/// Buckets of weights, in the order in which a backward pass comes to them: the last first.
struct GradientSum::State {
  struct Bucket {
    std::vector<Tensor> weights;
    Tensor flat;
    size_t waiting = 0;
    bool sent = false;
    decltype(std::declval<Processes::Group>().start_sum(std::declval<Tensor&>())) work = {};
  };
  std::vector<Bucket> buckets;
  size_t next = 0;  // buckets leave in their order, so that all processes agree
  bool begun = false;

  void send(Bucket& bucket) {
    std::vector<Tensor> parts;
    for (const Tensor& w : bucket.weights)
      parts.push_back((w.grad().defined() ? w.grad() : at::zeros_like(w)).reshape(-1));
    bucket.flat = at::cat(parts);
    bucket.work = processes().group_->start_sum(bucket.flat);
    bucket.sent = true;
  }

  void filled(size_t place) {
    if (!begun) return;
    if (buckets[place].sent || buckets[place].waiting == 0)
      throw std::logic_error("a weight got its gradient twice in the last backward pass of a step");
    --buckets[place].waiting;
    while (next < buckets.size() && buckets[next].waiting == 0) send(buckets[next++]);
  }
};

namespace {

struct Filled : torch::autograd::PostAccumulateGradHook {
  explicit Filled(std::function<void()> f) : call(std::move(f)) {}
  void operator()(const torch::autograd::Variable&) override { call(); }
  std::function<void()> call;
};

}  // namespace

GradientSum::GradientSum(std::vector<Tensor> weights, int64_t bucket_bytes) {
  if (processes().count() == 1) return;
  state_ = std::make_shared<State>();
  int64_t bytes = bucket_bytes;
  for (auto w = weights.rbegin(); w != weights.rend(); ++w) {
    if (bytes >= bucket_bytes || state_->buckets.back().weights.back().scalar_type() != w->scalar_type()) {
      state_->buckets.emplace_back();
      bytes = 0;
    }
    state_->buckets.back().weights.push_back(*w);
    bytes += static_cast<int64_t>(w->nbytes());
    const size_t place = state_->buckets.size() - 1;
    const std::weak_ptr<State> state = state_;
    torch::autograd::impl::set_post_acc_grad_hooks(*w, std::make_unique<Filled>([state, place] {
      if (const auto own = state.lock()) own->filled(place);
    }));
  }
}

GradientSum::~GradientSum() {
  if (!state_) return;
  for (State::Bucket& bucket : state_->buckets) {
    for (const Tensor& w : bucket.weights) torch::autograd::impl::set_post_acc_grad_hooks(w, nullptr);
  }
}

void GradientSum::begin() {
  if (!state_) return;
  for (State::Bucket& bucket : state_->buckets) bucket.waiting = bucket.weights.size(), bucket.sent = false;
  state_->next = 0;
  state_->begun = true;
}

void GradientSum::finish() {
  if (!state_) return;
  state_->begun = false;
  // Weights that no row of this process touched have no gradient here, but may have one elsewhere.
  while (state_->next < state_->buckets.size()) state_->send(state_->buckets[state_->next++]);
  for (State::Bucket& bucket : state_->buckets) {
    Processes::Group::finish(bucket.work);
    int64_t begin = 0;
    for (Tensor& w : bucket.weights) {
      const Tensor sum = bucket.flat.narrow(0, begin, w.numel()).view(w.sizes());
      begin += w.numel();
      if (w.grad().defined()) {
        at::Tensor(w.grad()).copy_(sum);
      } else {
        w.mutable_grad() = sum.clone();
      }
    }
    bucket.flat = Tensor();
    bucket.work = {};
  }
}

}  // namespace kullback
