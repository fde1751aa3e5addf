#pragma once

#include "kullback/base/registry.h"
#include "kullback/lm/sampling.h"

namespace kullback {

/// The options of sampling, as commands and pages declare them.
const Options<Sampling>& sampling_options();

}  // namespace kullback
