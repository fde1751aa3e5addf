#include "kullback/base/command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include <toml++/toml.h>
#include <CLI/CLI.hpp>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"

namespace kullback {
namespace {

Json to_json(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value);
    return object;
  }
  if (const auto* array = node.as_array()) {
    Json list = Json::array();
    for (const auto& value : *array) list.push_back(to_json(value));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  std::ostringstream text;  // dates and times are not options of ours; shown as written, the check will refuse them
  node.visit([&](const auto& n) {
    if constexpr (toml::is_value<decltype(n)>) text << n.get();
  });
  return text.str();
}

std::string toml_value(const Json& value) {
  if (value.is_null()) return "\"off\"";
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    const std::string text = fmt::format("{}", number);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (value.is_array()) {
    std::string text = "[";
    for (const Json& one : value) text += (text.size() > 1 ? ", " : "") + toml_value(one);
    return text + "]";
  }
  return value.dump();  // JSON's strings, integers and booleans are TOML's
}

std::string section_name(std::string heading) {
  for (char& c : heading) c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return heading;
}

std::string default_text(const OptionInfo& info) {
  const std::string text = option_text(info.fallback);
  return text.empty() ? "none" : text;
}

}  // namespace

Command::Command(std::string name, std::string summary, std::string description)
    : name_(std::move(name)), summary_(std::move(summary)), description_(std::move(description)) {}

Command& Command::options(std::string heading, const OptionSet& set, void* target) {
  const std::vector<std::string> known = option_names();
  for (const std::string& name : set.names()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      throw std::logic_error("two options of " + name_ + " are named --" + name);
    }
  }
  groups_.push_back({std::move(heading), &set, target});
  return *this;
}

Command& Command::arguments(std::string name, std::vector<std::string>* values, std::string help, size_t minimum,
                            size_t maximum) {
  positionals_.push_back({std::move(name), values, std::move(help), minimum, maximum});
  return *this;
}

Command& Command::example(std::string line) {
  examples_.push_back(std::move(line));
  return *this;
}

std::vector<std::string> Command::option_names() const {
  std::vector<std::string> names{"config", "help"};
  for (const Group& group : groups_) {
    for (const std::string& name : group.set->names()) names.push_back(name);
  }
  return names;
}

bool Command::parse(const std::vector<std::string>& arguments) {
  if (const auto config = peek(arguments, "config")) read_config(*config);

  CLI::App app;
  app.set_help_flag();
  bool help_wanted = false;
  std::string config;
  app.add_flag("-h,--help", help_wanted);
  app.add_option("--config", config)->allow_extra_args(false);
  for (const Group& group : groups_) {
    for (const Option& option : group.set->list()) {
      const std::string flag = "--" + option.info.name;
      if (option.info.type == OptionType::flag && !option.info.is_list) {
        app.add_flag_function(flag + ",!--no-" + option.info.name,
                              [&option, &group](int64_t count) { option.store(group.target, Json(count > 0)); });
        continue;
      }
      // The value is stored by a callback after CLI11 has split the words, so that one check serves flags and files alike.
      app.add_option(flag,
                     [&option, &group](const CLI::results_t& words) {
                       std::string text;
                       for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
                       option.store(group.target, option.info.parse(text));
                       return true;
                     })
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(option.info.is_list ? CLI::MultiOptionPolicy::TakeAll
                                                    : CLI::MultiOptionPolicy::TakeLast);
    }
  }
  std::vector<std::string> words;
  app.add_option("arguments", words);

  // CLI11 knows options as they were declared; underscores are as good as dashes.
  std::vector<std::string> reversed;
  for (auto word = arguments.rbegin(); word != arguments.rend(); ++word) {
    const bool is_flag = word->starts_with("--");
    const size_t end = is_flag ? std::min(word->find('='), word->size()) : 0;
    reversed.push_back(canonical_option_name(word->substr(0, end)) + word->substr(end));
  }
  try {
    app.parse(reversed);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> unknown = app.remaining();
    std::string word = unknown.empty() ? "" : unknown.front();
    word = word.substr(0, word.find('='));
    const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    fail("kullback {}: unknown option {}{}; `kullback {} --help` lists them", name_, word,
         suggestion(bare, option_names()), name_);
  } catch (const CLI::ParseError& error) {
    fail("kullback {}: {}", name_, error.what());
  }
  if (help_wanted) {
    fmt::print("{}", help());
    return false;
  }
  size_t taken = 0;
  for (const Positional& positional : positionals_) {
    const size_t count = std::min(words.size() - taken, positional.maximum);
    if (count < positional.minimum)
      fail("kullback {}: {} is missing; `kullback {} --help` explains", name_, positional.name, name_);
    positional.values->assign(words.begin() + static_cast<std::ptrdiff_t>(taken),
                              words.begin() + static_cast<std::ptrdiff_t>(taken + count));
    taken += count;
  }
  if (taken < words.size()) fail("kullback {}: unexpected argument \"{}\"", name_, words[taken]);
  return true;
}

void Command::read_config(const std::string& path) {
  const Json document = read_toml(path);
  std::vector<std::string> sections;
  for (const Group& group : groups_) sections.push_back(section_name(group.heading));
  const auto assign = [&](const std::string& name, const Json& value) {
    for (const Group& group : groups_) {
      if (group.set->find(name) != nullptr) return group.set->assign(group.target, Json{{name, value}}, path);
    }
    fail("{}: unknown option \"{}\"{}", path, name, suggestion(canonical_option_name(name), option_names()));
  };
  for (const auto& [key, value] : document.items()) {
    if (!value.is_object()) {
      assign(key, value);
      continue;
    }
    if (std::find(sections.begin(), sections.end(), section_name(key)) == sections.end()) {
      fail("{}: unknown section [{}]{}", path, key, suggestion(section_name(key), sections));
    }
    for (const auto& [name, inner] : value.items()) assign(name, inner);
  }
}

std::string Command::help() const {
  std::string text = fmt::format("kullback {}: {}\n\nUsage: kullback {}", name_, summary_, name_);
  for (const Positional& positional : positionals_) {
    text += positional.minimum > 0 ? " " + positional.name : " [" + positional.name + "]";
    if (positional.maximum > 1) text += "...";
  }
  text += " [options]\n";
  if (!description_.empty()) text += "\n" + description_ + "\n";
  if (!positionals_.empty()) {
    text += "\nArguments:\n";
    for (const Positional& positional : positionals_)
      text += fmt::format("  {:<28} {}\n", positional.name, positional.help);
  }
  for (const Group& group : groups_) {
    text += fmt::format("\n{}:\n", group.heading);
    for (const Option& option : group.set->list()) {
      const OptionInfo& info = option.info;
      const bool flag = info.type == OptionType::flag && !info.is_list;
      text += fmt::format("  --{:<26} {}\n", info.name + (flag ? "" : " VALUE"), info.help);
      text += fmt::format("  {:<28} {}; default {}{}\n", "",
                          flag ? "switch, --no-" + info.name + " turns it off" : info.type_text(), default_text(info),
                          info.source.empty() ? "" : ", " + info.source);
    }
  }
  text += "\nGeneral:\n  --config FILE                TOML file with any of these options; flags override it\n";
  text += "  -h, --help                   this text\n";
  text += "  -q, --quiet                  errors only, no progress and no notes; -v, --verbose: more than usual\n";
  text += "  --threads N                  threads to compute with; else one a processor\n";
  if (!examples_.empty()) {
    text += "\nExamples:\n";
    for (const std::string& line : examples_) text += "  " + line + "\n";
  }
  return text;
}

std::string Command::page() const {
  std::string text = fmt::format("# kullback {}\n\n{}\n", name_, summary_);
  if (!description_.empty()) text += "\n" + description_ + "\n";
  if (!examples_.empty()) {
    text += "\n```sh\n";
    for (const std::string& line : examples_) text += line + "\n";
    text += "```\n";
  }
  for (const Positional& positional : positionals_)
    text += fmt::format("\n`{}`: {}\n", positional.name, positional.help);
  for (const Group& group : groups_) {
    text += fmt::format("\n## {}\n\n| option | accepts | default | meaning |\n|---|---|---|---|\n", group.heading);
    for (const Option& option : group.set->list()) {
      const OptionInfo& info = option.info;
      text += fmt::format("| `--{}` | {} | {} | {}{} |\n", info.name, info.type_text(), default_text(info), info.help,
                          info.source.empty() ? "" : " (" + info.source + ")");
    }
  }
  return text;
}

Json Command::values() const {
  Json all = Json::object();
  for (const Group& group : groups_) all[section_name(group.heading)] = group.set->values(group.target);
  return all;
}

std::string Command::toml() const {
  std::string text = fmt::format(
      "# kullback {}: the resolved configuration. To repeat it: kullback {} --config THIS_FILE\n", name_, name_);
  for (const Group& group : groups_) {
    text += fmt::format("\n[{}]\n", section_name(group.heading));
    const Json values = group.set->values(group.target);
    for (const auto& [name, value] : values.items()) text += fmt::format("{} = {}\n", name, toml_value(value));
  }
  return text;
}

std::optional<std::string> Command::peek(const std::vector<std::string>& arguments, const std::string& option) {
  const std::string flag = "--" + option;
  std::optional<std::string> found;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == flag && i + 1 < arguments.size()) found = arguments[i + 1];
    if (arguments[i].starts_with(flag + "=")) found = arguments[i].substr(flag.size() + 1);
  }
  if (found || option == "config") return found;
  if (const auto config = peek(arguments, "config")) {
    const Json document = read_toml(*config);
    for (const auto& [key, value] : document.items()) {
      if (key == option && value.is_string()) return value.get<std::string>();
      if (value.is_object() && value.contains(option) && value[option].is_string())
        return value[option].get<std::string>();
    }
  }
  return found;
}

Json read_toml(const std::string& path) {
  try {
    return to_json(toml::parse_file(path));
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    if (line == 0) fail("{}: {}", path, error.description());
    fail("{}: line {}: {}", path, line, error.description());
  }
}

}  // namespace kullback
