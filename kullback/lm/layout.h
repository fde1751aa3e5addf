#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/layer.h"

namespace kullback {

struct Transformer;

/// How parts of a model lie in one tensor of a file.
enum class Packing {
  rows,        ///< the rows of one part after those of the other; a part alone lies as it is
  transposed,  ///< the same, but matrices are [in, out] (GPT-2)
  heads,       ///< head by head: its rows of each part (GPT-NeoX)
  pairs,    ///< a part alone, the rows of each head as a rotation of neighbours wants them: 0, d/2, 1, ... (llama.cpp)
  shifted,  ///< a part alone, stored as 1 + w (llama.cpp's Gemma)
};

/// One module of a layer and what lies in it: linear layers (their weights in one tensor, their biases in another), or a
/// norm.
struct LayoutEntry {
  const char* module;
  std::vector<Linear Layer::*> linears = {};
  Norm Layer::*norm = nullptr;
  Packing packing = Packing::rows;
};

/// What a family's files call the parts of the model, in the model's order.
struct Layout {
  const char* embedding;
  const char* positions;
  const char* layer;  ///< before the number of a layer
  std::vector<LayoutEntry> entries;
  const char* final_norm;
  const char* head;
  Packing norm_packing = Packing::rows;  ///< of all norms
};

/// The layout of a family's Hugging Face files, or of its GGUF files. `model_type`: one of model_families().
const Layout& hugging_face_layout(const std::string& model_type);
const Layout& gguf_layout(const std::string& model_type);

/// A tensor of a file and the model's tensors that it holds.
struct StoredTensor {
  std::string name;
  std::vector<at::Tensor> parts;
  std::vector<std::string> part_names;  ///< q_proj, ...; the name alone where there is one part
  Packing packing = Packing::rows;
  int64_t heads = 0;  ///< of each part, for those that are packed by heads
};

/// Every tensor that a file of the model holds (a tied head is none), in the model's order.
std::vector<StoredTensor> stored_tensors(const Transformer& model, const Layout& layout);

std::vector<int64_t> stored_shape(const StoredTensor& stored);
/// The tensor as the file has it: the part itself where nothing needs to be moved.
at::Tensor pack(const StoredTensor& stored);
/// Whether the file has the one part as it is.
bool is_plain(const StoredTensor& stored);
/// Fills the parts from the tensor of a file.
void unpack(const at::Tensor& tensor, const StoredTensor& stored);

}  // namespace kullback
