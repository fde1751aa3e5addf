#pragma once

#include <string>

#include "kullback/base/registry.h"
#include "kullback/divergence/head.h"
#include "kullback/train/check.h"

namespace kullback {

/// Rows of a fixture's case, float64: its input NAME_logits [...,V], or NAME_hidden [...,D] with NAME_head [V,D]. Logits are
/// -inf where `forbidden` (by default NAME_logits_neg_inf), if the case has it, is 1: JSON has no infinity.
Rows fixture_rows(CheckCase& c, const std::string& name, const std::string& forbidden = "");

/// Sets a method's options to those of a case; flags may be written as 0 and 1.
void assign_fixture_options(CheckCase& c, const std::string& method, void* options);

/// The options of a case as the method's own struct.
template <class O>
O fixture_options(CheckCase& c, const std::string& method) {
  O options;
  assign_fixture_options(c, method, &options);
  return options;
}

}  // namespace kullback
