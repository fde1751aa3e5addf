#include "kullback/base/registry.h"

#include <algorithm>
#include <stdexcept>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"

namespace kullback {
namespace {

std::vector<Method>& registry() {
  static std::vector<Method> all;  // made on first use: registration runs before main, in no known order of files
  return all;
}

}  // namespace

std::string family_name(Family family) {
  switch (family) {
    case Family::alignment: return "alignment";
    case Family::distillation: return "distillation";
    case Family::decoding: return "decoding";
    case Family::compression: return "compression";
    case Family::merging: return "merging";
    case Family::measurement: return "measurement";
  }
  return "";
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{Family::alignment,   Family::distillation, Family::decoding,
                                       Family::compression, Family::merging,      Family::measurement};
  return all;
}

std::string Paper::text() const {
  std::string text = title;
  if (!arxiv.empty()) text += ", arXiv " + arxiv;
  if (!venue.empty()) text += ", " + venue;
  return text;
}

const std::vector<Method>& methods() { return registry(); }

const Method& find_method(std::string_view name) {
  std::vector<std::string> names;
  for (const Method& method : methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  fail("unknown method \"{}\"{}; `kullback methods` lists them", name, suggestion(name, names));
}

const Method& find_method(std::string_view name, Family family) {
  const Method& method = find_method(name);
  if (method.family != family)
    fail("method {} belongs to {}, not to {}", name, family_name(method.family), family_name(family));
  return method;
}

Registered::Registered(Method method) {
  auto& all = registry();
  const auto key = [](const Method& m) { return std::pair(m.family, m.name); };
  const auto place = std::lower_bound(all.begin(), all.end(), method,
                                      [&](const Method& a, const Method& b) { return key(a) < key(b); });
  if (place != all.end() && place->name == method.name) throw std::logic_error("two methods are named " + method.name);
  all.insert(place, std::move(method));
}

std::string explain(const Method& method) {
  std::string page =
      fmt::format("# {}\n\n{}\n\nFamily: {}.\n", method.name, method.summary, family_name(method.family));
  if (!method.formula.empty()) page += fmt::format("\n## Formula\n\n```\n{}\n```\n", method.formula);
  if (!method.when.empty()) page += fmt::format("\n## When to use it\n\n{}\n", method.when);
  if (!method.needs.empty()) page += fmt::format("\n## Needs\n\n{}.\n", listing(method.needs));
  if (method.options && !method.options->list().empty()) {
    page += "\n## Options\n\n| option | accepts | default | meaning |\n|---|---|---|---|\n";
    for (const Option& option : method.options->list()) {
      const OptionInfo& info = option.info;
      page += fmt::format("| `--{}` | {} | {} | {}{} |\n", info.name, info.type_text(), option_text(info.fallback),
                          info.help, info.source.empty() ? "" : " (" + info.source + ")");
    }
  }
  if (!method.papers.empty()) {
    page += "\n## Source\n\n";
    for (const Paper& paper : method.papers) page += fmt::format("- {}\n", paper.text());
  }
  return page;
}

}  // namespace kullback
