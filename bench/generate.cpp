// Generation by a real model with its matrices kept as float32, bfloat16 and int8: reading a prompt of 384 tokens, continuing
// it by 96 alone, and continuing sixteen prompts of 64 tokens by 48 at once; and how far the shorter weights move the laws.
//
//   build/bench/generate [MODEL]            a Hugging Face folder, a GGUF file or a name known to `kullback pull`
//                                           (smollm2-135m-instruct)
//     --summary                             one JSON line
//     --rounds 3                            the best of so many; those of the types alternate
//
// ../shared/peers/generate.py measures the same of llama.cpp and transformers.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/model.h"

namespace {

using namespace kullback;
using Clock = std::chrono::steady_clock;
using Prompts = std::vector<std::vector<int32_t>>;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

struct Speed {
  double prompt = 0, decode = 0;  // tokens a second
};

/// Reads the prompts and continues each by `steps` + 1 tokens, whatever they are.
Speed run(const Transformer& model, const Prompts& prompts, int64_t steps) {
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = steps + 1;
  const Clock::time_point begin = Clock::now();
  Clock::time_point first{}, last{};
  size_t tokens = 0;
  generate(model, prompts, options, [&](size_t, int32_t) {
    last = Clock::now();
    if (++tokens == prompts.size()) first = last;
    return true;
  });
  const auto count = static_cast<double>(prompts.size());
  return {count * static_cast<double>(prompts[0].size()) / seconds(first - begin),
          count * static_cast<double>(steps) / seconds(last - first)};
}

Prompts random_prompts(const Model& model, size_t count, int64_t length) {
  Prompts prompts;
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor ids = at::randint(5, model.config().vocabulary_size, {length}, at::kInt);
    prompts.emplace_back(ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + length);
  }
  return prompts;
}

/// Beginnings of English texts, or random ones for a model without a tokenizer.
Prompts beginnings(const Model& model) {
  if (!model.tokenizer) return random_prompts(model, 4, 8);
  Prompts prompts;
  for (const char* text : {"The history of the sea is long, and", "Once upon a time there was a king who",
                           "To make bread, take flour and", "The capital of France is a city that"})
    prompts.push_back(model.text().encode(text));
  return prompts;
}

/// Exact KL(A || B) a token over what A says after the prompts, nats.
double divergence_per_token(const Transformer& a, const Transformer& b, const Prompts& prompts) {
  const at::NoGradGuard no_grad;
  GenerationOptions options;
  options.max_new_tokens = 96;
  Prompts texts = prompts;
  const std::vector<Generated> answers = generate(a, prompts, options);
  for (size_t i = 0; i < texts.size(); ++i)
    texts[i].insert(texts[i].end(), answers[i].ids.begin(), answers[i].ids.end());
  const Ragged batch = ragged(texts);
  HeadRequest request;
  request.divergences = {divergence("kl").from_reference()};
  return head_statistics(b.head_rows(b.hidden(batch)), a.head_rows(a.hidden(batch)), request)
      .divergences[0]
      .mean()
      .item<double>();
}

struct Result {
  Speed alone, together;
};

int measure(const std::string& name, int rounds, bool summary) {
  at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  at::manual_seed(0);
  std::map<std::string, Model> models;
  for (const auto& [type, kept] : weight_types()) models.emplace(type, load_model(name, at::kFloat, kept));
  const Model& whole = models.at("float32");
  const Prompts one = random_prompts(whole, 1, 384), many = random_prompts(whole, 16, 64);
  std::map<std::string, Result> results;
  const auto keep = [](Speed& best, const Speed& now) {
    best = {std::max(best.prompt, now.prompt), std::max(best.decode, now.decode)};
  };
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [type, kept] : weight_types()) {
      const Transformer& model = models.at(type).transformer;
      keep(results[type].alone, run(model, one, 96));
      keep(results[type].together, run(model, many, 48));
    }
  }
  Json json{{"model", name}, {"threads", at::get_num_threads()}};
  for (const auto& [type, kept] : weight_types()) {
    const Result& r = results[type];
    const double kl =
        type == "float32" ? 0 : divergence_per_token(whole.transformer, models.at(type).transformer, beginnings(whole));
    json[type] = {{"prompt_384", r.alone.prompt},
                  {"decode_1", r.alone.decode},
                  {"decode_16", r.together.decode},
                  {"sixteen_to_one", r.together.decode / r.alone.decode},
                  {"decode_to_float32", r.alone.decode / results["float32"].alone.decode},
                  {"prompt_to_float32", r.alone.prompt / results["float32"].alone.prompt},
                  {"kl_from_float32", kl}};
    if (summary) continue;
    std::printf(
        "%-9s prompt %7.1f tokens/s (%.2f x float32)   alone %6.1f (%.2f x)   sixteen %7.1f (%.2f x alone)   "
        "KL(float32 || it) %.2g nats/token\n",
        type.c_str(), r.alone.prompt, json[type]["prompt_to_float32"].get<double>(), r.alone.decode,
        json[type]["decode_to_float32"].get<double>(), r.together.decode, json[type]["sixteen_to_one"].get<double>(),
        kl);
  }
  if (summary) std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::string model = "smollm2-135m-instruct";
  int rounds = 3;
  bool summary = false;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--summary") {
      summary = true;
    } else if (argument == "--rounds" && i + 1 < count) {
      rounds = std::max(1, std::atoi(arguments[++i]));
    } else {
      model = argument;
    }
  }
  try {
    return measure(model, rounds, summary);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
