#pragma once

#include "kullback/base/registry.h"
#include "kullback/lm/sampling.h"

namespace kullback {

/// The options of sampling, as commands and pages declare them; and all of them but the temperature.
const Options<Sampling>& sampling_options();
const Options<Sampling>& filter_options();

}  // namespace kullback
