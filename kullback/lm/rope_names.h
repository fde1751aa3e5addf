#pragma once

#include <utility>

#include "kullback/lm/config.h"

namespace kullback {

/// How config.json calls the scalings.
inline constexpr std::pair<Rope::Scaling, const char*> rope_scaling_names[] = {
    {Rope::Scaling::none, "default"},  {Rope::Scaling::linear, "linear"}, {Rope::Scaling::dynamic, "dynamic"},
    {Rope::Scaling::llama3, "llama3"}, {Rope::Scaling::yarn, "yarn"},     {Rope::Scaling::longrope, "longrope"}};

}  // namespace kullback
