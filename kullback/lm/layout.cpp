#include "kullback/lm/layout.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/lm/transformer.h"

namespace kullback {
namespace {

using L = Layer;

Layout llama_layout() {
  return {"model.embed_tokens",
          nullptr,
          "model.layers.",
          {{.module = "input_layernorm", .norm = &L::attention_norm},
           {.module = "self_attn.q_proj", .linears = {&L::query}},
           {.module = "self_attn.k_proj", .linears = {&L::key}},
           {.module = "self_attn.v_proj", .linears = {&L::value}},
           {.module = "self_attn.o_proj", .linears = {&L::output}},
           {.module = "self_attn.q_norm", .norm = &L::query_norm},
           {.module = "self_attn.k_norm", .norm = &L::key_norm},
           {.module = "mlp.gate_proj", .linears = {&L::gate}},
           {.module = "mlp.up_proj", .linears = {&L::up}},
           {.module = "mlp.down_proj", .linears = {&L::down}},
           {.module = "post_attention_layernorm", .norm = &L::mlp_norm}},
          "model.norm",
          "lm_head"};
}

// Four norms a layer; the name of Llama's second one is here that of another.
Layout gemma2_layout() {
  Layout layout = llama_layout();
  layout.entries.back() = {.module = "post_attention_layernorm", .norm = &L::attention_post_norm};
  layout.entries.push_back({.module = "pre_feedforward_layernorm", .norm = &L::mlp_norm});
  layout.entries.push_back({.module = "post_feedforward_layernorm", .norm = &L::mlp_post_norm});
  return layout;
}

Layout phi3_layout() {
  Layout layout = llama_layout();
  layout.entries = {{.module = "input_layernorm", .norm = &L::attention_norm},
                    {.module = "self_attn.qkv_proj", .linears = {&L::query, &L::key, &L::value}},
                    {.module = "self_attn.o_proj", .linears = {&L::output}},
                    {.module = "mlp.gate_up_proj", .linears = {&L::gate, &L::up}},
                    {.module = "mlp.down_proj", .linears = {&L::down}},
                    {.module = "post_attention_layernorm", .norm = &L::mlp_norm}};
  return layout;
}

Layout gpt2_layout() {
  constexpr Packing columns = Packing::transposed;
  return {"transformer.wte",
          "transformer.wpe",
          "transformer.h.",
          {{.module = "ln_1", .norm = &L::attention_norm},
           {.module = "attn.c_attn", .linears = {&L::query, &L::key, &L::value}, .packing = columns},
           {.module = "attn.c_proj", .linears = {&L::output}, .packing = columns},
           {.module = "ln_2", .norm = &L::mlp_norm},
           {.module = "mlp.c_fc", .linears = {&L::up}, .packing = columns},
           {.module = "mlp.c_proj", .linears = {&L::down}, .packing = columns}},
          "transformer.ln_f",
          "lm_head"};
}

Layout gpt_neox_layout() {
  return {
      "gpt_neox.embed_in",
      nullptr,
      "gpt_neox.layers.",
      {{.module = "input_layernorm", .norm = &L::attention_norm},
       {.module = "post_attention_layernorm", .norm = &L::mlp_norm},
       {.module = "attention.query_key_value", .linears = {&L::query, &L::key, &L::value}, .packing = Packing::heads},
       {.module = "attention.dense", .linears = {&L::output}},
       {.module = "mlp.dense_h_to_4h", .linears = {&L::up}},
       {.module = "mlp.dense_4h_to_h", .linears = {&L::down}}},
      "gpt_neox.final_layer_norm",
      "embed_out"};
}

// llama.cpp's names, as its converter writes them.
Layout gguf_llama_layout(Packing query_and_key) {
  return {"token_embd",
          "position_embd",
          "blk.",
          {{.module = "attn_norm", .norm = &L::attention_norm},
           {.module = "attn_q", .linears = {&L::query}, .packing = query_and_key},
           {.module = "attn_k", .linears = {&L::key}, .packing = query_and_key},
           {.module = "attn_v", .linears = {&L::value}},
           {.module = "attn_output", .linears = {&L::output}},
           {.module = "attn_q_norm", .norm = &L::query_norm},
           {.module = "attn_k_norm", .norm = &L::key_norm},
           {.module = "post_attention_norm", .norm = &L::attention_post_norm},
           {.module = "ffn_norm", .norm = &L::mlp_norm},
           {.module = "ffn_gate", .linears = {&L::gate}},
           {.module = "ffn_up", .linears = {&L::up}},
           {.module = "ffn_down", .linears = {&L::down}},
           {.module = "post_ffw_norm", .norm = &L::mlp_post_norm}},
          "output_norm",
          "output"};
}

Layout gguf_gemma_layout() {
  Layout layout = gguf_llama_layout(Packing::rows);
  layout.norm_packing = Packing::shifted;
  return layout;
}

// Queries, keys and values in one tensor, one after another in every family; Phi-3's gate lies before its `up`.
Layout gguf_fused_layout(bool gated) {
  Layout layout = gguf_llama_layout(Packing::rows);
  std::vector<LayoutEntry> entries = {{.module = "attn_norm", .norm = &L::attention_norm},
                                      {.module = "attn_qkv", .linears = {&L::query, &L::key, &L::value}},
                                      {.module = "attn_output", .linears = {&L::output}},
                                      {.module = "ffn_norm", .norm = &L::mlp_norm},
                                      {.module = "ffn_up", .linears = {&L::up}},
                                      {.module = "ffn_down", .linears = {&L::down}}};
  if (gated) entries[4].linears = {&L::gate, &L::up};
  layout.entries = entries;
  return layout;
}

bool is_gemma(const std::string& family) { return family.starts_with("gemma"); }

void add(std::vector<StoredTensor>& all, const std::string& name, const at::Tensor& tensor,
         Packing packing = Packing::rows) {
  if (tensor.defined()) all.push_back({name, {tensor}, {name}, packing, 0});
}

void add_norm(std::vector<StoredTensor>& all, const std::string& module, const Norm& norm, Packing packing) {
  add(all, module + ".weight", norm.weight, packing);
  add(all, module + ".bias", norm.bias);
}

void add_linears(std::vector<StoredTensor>& all, const std::string& module, const LayoutEntry& entry,
                 const Layer& layer, const Config& config) {
  for (at::Tensor Linear::*member : {&Linear::weight, &Linear::bias}) {
    StoredTensor stored;
    stored.name = module + (member == &Linear::weight ? ".weight" : ".bias");
    stored.packing = entry.packing;
    stored.heads = entry.linears[0] == &Layer::key ? config.key_value_heads : config.heads;
    for (Linear Layer::*linear : entry.linears) {
      const at::Tensor& part = (layer.*linear).*member;
      if (!part.defined()) continue;
      stored.parts.push_back(part);
      stored.part_names.push_back(entry.linears.size() == 1 ? stored.name
                                                            : fmt::format("{}[{}]", stored.name, linear_name(linear)));
    }
    if (!stored.parts.empty()) all.push_back(std::move(stored));
  }
}

// [heads d, ...] -> [heads, d, ...]
at::Tensor by_heads(const at::Tensor& part, int64_t heads) {
  std::vector<int64_t> shape = part.sizes().vec();
  shape[0] /= heads;
  shape.insert(shape.begin(), heads);
  return part.view(shape);
}

}  // namespace

const Layout& hugging_face_layout(const std::string& model_type) {
  static const Layout llama = llama_layout(), gemma2 = gemma2_layout(), phi3 = phi3_layout(), gpt2 = gpt2_layout(),
                      gpt_neox = gpt_neox_layout();
  if (model_type == "gemma2" || model_type == "gemma3_text" || model_type == "olmo2") return gemma2;
  if (model_type == "phi3") return phi3;
  if (model_type == "gpt2") return gpt2;
  if (model_type == "gpt_neox") return gpt_neox;
  return llama;
}

const Layout& gguf_layout(const std::string& model_type) {
  static const Layout llama = gguf_llama_layout(Packing::pairs), plain = gguf_llama_layout(Packing::rows),
                      gemma = gguf_gemma_layout(), phi3 = gguf_fused_layout(true), fused = gguf_fused_layout(false);
  if (model_type == "llama" || model_type == "mistral" || model_type == "smollm3") return llama;
  if (is_gemma(model_type)) return gemma;
  if (model_type == "phi3") return phi3;
  if (model_type == "gpt2" || model_type == "gpt_neox") return fused;
  return plain;
}

std::vector<StoredTensor> stored_tensors(const Transformer& model, const Layout& layout) {
  std::vector<StoredTensor> all;
  add(all, std::string(layout.embedding) + ".weight", model.embedding);
  if (layout.positions) add(all, std::string(layout.positions) + ".weight", model.positions);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const LayoutEntry& entry : layout.entries) {
      const std::string module = fmt::format("{}{}.{}", layout.layer, i, entry.module);
      if (entry.norm) {
        add_norm(all, module, model.layers[i].*entry.norm, layout.norm_packing);
      } else {
        add_linears(all, module, entry, model.layers[i], model.config);
      }
    }
  }
  add_norm(all, layout.final_norm, model.final_norm, layout.norm_packing);
  if (!model.config.tied_head) add(all, std::string(layout.head) + ".weight", model.head);
  return all;
}

bool is_plain(const StoredTensor& stored) {
  return stored.parts.size() == 1 && (stored.packing == Packing::rows || stored.packing == Packing::heads ||
                                      (stored.packing == Packing::transposed && stored.parts[0].dim() == 1));
}

std::vector<int64_t> stored_shape(const StoredTensor& stored) {
  std::vector<int64_t> shape = stored.parts[0].sizes().vec();
  for (size_t i = 1; i < stored.parts.size(); ++i) shape[0] += stored.parts[i].size(0);
  if (stored.packing == Packing::transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
  return shape;
}

at::Tensor pack(const StoredTensor& stored) {
  const std::vector<at::Tensor>& parts = stored.parts;
  if (is_plain(stored)) return parts[0];
  switch (stored.packing) {
    case Packing::rows: return at::cat(parts);
    case Packing::transposed: {
      const at::Tensor rows = parts.size() == 1 ? parts[0] : at::cat(parts);
      return rows.dim() == 2 ? rows.t().contiguous() : rows;
    }
    case Packing::heads: {
      std::vector<at::Tensor> heads;
      for (const at::Tensor& part : parts) heads.push_back(by_heads(part, stored.heads));
      return at::cat(heads, 1).reshape(stored_shape(stored));
    }
    case Packing::pairs:
      return parts[0]
          .view({stored.heads, 2, parts[0].size(0) / stored.heads / 2, -1})
          .transpose(1, 2)
          .reshape(parts[0].sizes());
    case Packing::shifted: return parts[0] + 1;
  }
  throw std::logic_error("a packing without a rule");
}

void unpack(const at::Tensor& tensor, const StoredTensor& stored) {
  std::vector<at::Tensor> parts = stored.parts;  // handles: what is copied into them is the model's
  std::vector<int64_t> rows;
  for (const at::Tensor& part : parts) rows.push_back(part.size(0));
  switch (stored.packing) {
    case Packing::rows:
    case Packing::transposed: {
      const at::Tensor whole = stored.packing == Packing::transposed && tensor.dim() == 2 ? tensor.t() : tensor;
      const std::vector<at::Tensor> pieces = whole.split_with_sizes(rows);
      for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(pieces[i]);
      return;
    }
    case Packing::heads: {
      for (int64_t& count : rows) count /= stored.heads;
      const std::vector<at::Tensor> pieces = by_heads(tensor, stored.heads).split_with_sizes(rows, 1);
      for (size_t i = 0; i < parts.size(); ++i) by_heads(parts[i], stored.heads).copy_(pieces[i]);
      return;
    }
    case Packing::pairs: {
      const int64_t half = parts[0].size(0) / stored.heads / 2;
      parts[0].view({stored.heads, 2, half, -1}).copy_(tensor.view({stored.heads, half, 2, -1}).transpose(1, 2));
      return;
    }
    case Packing::shifted: parts[0].copy_(tensor).sub_(1); return;
  }
}

}  // namespace kullback
