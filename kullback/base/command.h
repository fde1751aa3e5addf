#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kullback/base/options.h"

namespace kullback {

/// One command of the program: its groups of options, bound to structs. Parsing fills the structs from `--config FILE`
/// (TOML) first and from the command line after that, so that a flag overrides the file.
class Command {
 public:
  /// Options under one heading, and the struct that they fill.
  struct Group {
    std::string heading;
    const OptionSet* set;
    void* target;
  };
  /// Arguments without a name.
  struct Positional {
    std::string name;
    std::vector<std::string>* values;
    std::string help;
    size_t minimum, maximum;
  };

  Command(std::string name, std::string summary, std::string description = "");

  /// Binds all options of a set to `target`, which must outlive the command. Two options of one name are a fault of ours.
  Command& options(std::string heading, const OptionSet& set, void* target);
  /// Arguments without a name, between `minimum` and `maximum` of them.
  Command& arguments(std::string name, std::vector<std::string>* values, std::string help, size_t minimum = 0,
                     size_t maximum = 1000000);
  Command& example(std::string line);

  /// Reads the command's own arguments. False when help was asked for and printed. Errors name the option at fault.
  bool parse(const std::vector<std::string>& arguments);

  std::string help() const;
  Json values() const;       ///< the resolved configuration, by option name, groups as objects
  std::string toml() const;  ///< the same as a TOML file that `--config` reads back
  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  const std::string& description() const { return description_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Positional>& positionals() const { return positionals_; }
  const std::vector<std::string>& examples() const { return examples_; }
  std::string page() const;  ///< the command's page for the docs, Markdown

  /// The value that an option will have, before the command is complete: `--method` decides which options follow.
  static std::optional<std::string> peek(const std::vector<std::string>& arguments, const std::string& option);

 private:
  std::vector<std::string> option_names() const;
  void read_config(const std::string& path);

  std::string name_, summary_, description_;
  std::vector<Group> groups_;
  std::vector<Positional> positionals_;
  std::vector<std::string> examples_;
};

/// A TOML document as JSON; Errors name the file and line.
Json read_toml(const std::string& path);

}  // namespace kullback
