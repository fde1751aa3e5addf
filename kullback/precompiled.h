// The headers that nearly every file with tensors includes, compiled once (see cmake/KullbackRoom.cmake). A file still
// includes what it uses: this only makes it quick.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
