#pragma once

#include "kullback/lm/model.h"
#include "kullback/train/check.h"

namespace kullback {

/// The model that a fixture is checked with: the given one, else the one that it names, else the folder that it lies in.
Model fixture_model(const Json& fixture, const std::filesystem::path& file, const std::string& model);

/// Texts and the ids that they become.
CheckReport check_tokenizer(const Json& fixture, const std::filesystem::path& file, const std::string& model);
/// Chats: rendered prompt, ids, log-probabilities, entropies, logsumexp, largest logits and greedy continuation.
CheckReport check_language_model(const Json& fixture, const std::filesystem::path& file, const std::string& model);
/// The steps of a reference trainer on given batches.
CheckReport check_training_trace(const Json& fixture, const std::filesystem::path& file, const std::string& model);
/// Logits, loss, gradients and greedy tokens of a checkpoint, with the adapter that lies beside the fixture, if any.
CheckReport check_architecture(const Json& fixture, const std::filesystem::path& file, const std::string& model);

}  // namespace kullback
