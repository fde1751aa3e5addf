#include "kullback/distill/fixture_rows.h"

#include <limits>
#include <map>
#include <string>

#include <ATen/ATen.h>

namespace kullback {

Rows fixture_rows(CheckCase& c, const std::string& name, const std::string& forbidden) {
  Rows rows;
  if (c.has(name + "_hidden")) {
    rows.hidden = c.tensor(name + "_hidden").to(at::kDouble).flatten(0, -2);
    rows.weight = c.tensor(name + "_head").to(at::kDouble);
    return rows;
  }
  at::Tensor logits = c.tensor(name + "_logits").to(at::kDouble);
  const std::string mask = forbidden.empty() ? name + "_logits_neg_inf" : forbidden;
  if (c.has(mask)) logits = logits.masked_fill(c.mask(mask), -std::numeric_limits<double>::infinity());
  rows.hidden = logits.flatten(0, -2);
  return rows;
}

void assign_fixture_options(CheckCase& c, const std::string& method, void* options) {
  const OptionSet& known = *find_method(method).options;
  Json given = c.options();
  // Cards' names that options of every run have already.
  static const std::map<std::string, std::string> renamed{{"adapter", "adapter_form"},
                                                          {"schedule", "temperature_schedule"}};
  for (const auto& [card, own] : renamed) {
    if (!given.contains(card) || known.find(card) != nullptr) continue;
    given[own] = given[card];
    given.erase(card);
  }
  for (const auto& [name, value] : given.items()) {
    const Option* option = known.find(name);
    if (option != nullptr && option->info.type == OptionType::flag && value.is_number_integer())
      given[name] = value.get<int64_t>() != 0;
  }
  known.assign(options, given, c.where());
}

}  // namespace kullback
