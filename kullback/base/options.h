#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/base/json.h"

namespace kullback {

/// The numbers an option accepts. Its text stands in help, docs and error messages.
struct NumberRange {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_excluded = false;
  bool maximum_excluded = false;

  bool contains(double value) const;  ///< false for NaN
  std::string text() const;           ///< "> 0", "[0, 0.5)", "" when unbounded
};

constexpr double unbounded = std::numeric_limits<double>::infinity();
inline const NumberRange any_number{};
inline const NumberRange positive{.minimum = 0, .minimum_excluded = true};
inline const NumberRange non_negative{.minimum = 0};
inline const NumberRange fraction{.minimum = 0, .maximum = 1};
constexpr NumberRange at_least(double minimum) { return {.minimum = minimum}; }
constexpr NumberRange between(double minimum, double maximum) { return {.minimum = minimum, .maximum = maximum}; }
constexpr NumberRange from_to_below(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .maximum_excluded = true};
}

enum class OptionType { flag, integer, number, text, choice };

/// All that is known of one option. The command line, TOML files, --help, the docs pages, validation and the resolved
/// configuration of a run are all made from this, and from nothing else.
struct OptionInfo {
  std::string name = {};  ///< as on the command line, without dashes in front: "max-length"
  OptionType type = OptionType::text;
  bool is_list = false;                   ///< several values, separated by commas
  bool may_be_off = false;                ///< accepts "off": the option then has no value
  NumberRange range = {};                 ///< numbers only
  std::vector<std::string> choices = {};  ///< choices only
  std::string help = {};                  ///< one sentence, no full stop
  std::string source = {};                ///< where the default comes from, may be empty
  Json fallback = {};                     ///< the default

  std::string type_text() const;            ///< "number > 0", "one of a, b", "integer, off", …
  Json parse(std::string_view text) const;  ///< a value as written on the command line; Error names the option
  Json checked(const Json& value) const;    ///< a value as read from a file; Error names the option
};

/// How a value of an option is written on the command line and in help: no quotes, lists joined by commas, null as "off".
std::string option_text(const Json& value);

/// The same name whether written with dashes or underscores.
std::string canonical_option_name(std::string_view name);

/// One option bound to a member of some struct.
struct Option {
  OptionInfo info;
  std::function<void(void* owner, const Json& checked)> store;
  std::function<Json(const void* owner)> load;
};

/// The options of one struct, in the order of their declaration.
class OptionSet {
 public:
  const std::vector<Option>& list() const { return options_; }
  std::vector<std::string> names() const;
  const Option* find(std::string_view name) const;  ///< by name, dashes or underscores; null if unknown

  /// Sets members from an object of name -> value. Unknown names and bad values are Errors that begin with `where`.
  void assign(void* owner, const Json& values, const std::string& where) const;
  Json values(const void* owner) const;
  std::shared_ptr<void> defaults() const { return make_(); }

 protected:
  std::vector<Option> options_;
  std::function<std::shared_ptr<void>()> make_;
};

namespace detail {

/// How a member's type maps to an option's type and to JSON.
template <class Value>
struct Member {
  static constexpr OptionType type = std::is_floating_point_v<Value> ? OptionType::number : OptionType::integer;
  static void describe(OptionInfo& info) { info.type = type; }
  static Json to_json(const Value& value) { return value; }
  static Value from_json(const Json& value) { return value.get<Value>(); }
};
template <>
struct Member<bool> {
  static void describe(OptionInfo& info) { info.type = OptionType::flag; }
  static Json to_json(bool value) { return value; }
  static bool from_json(const Json& value) { return value.get<bool>(); }
};
template <>
struct Member<std::string> {
  static void describe(OptionInfo& info) { info.type = OptionType::text; }
  static Json to_json(const std::string& value) { return value; }
  static std::string from_json(const Json& value) { return value.get<std::string>(); }
};
template <class Value>
struct Member<std::optional<Value>> {
  static void describe(OptionInfo& info) { Member<Value>::describe(info), info.may_be_off = true; }
  static Json to_json(const std::optional<Value>& value) { return value ? Member<Value>::to_json(*value) : Json(); }
  static std::optional<Value> from_json(const Json& value) {
    return value.is_null() ? std::nullopt : std::optional(Member<Value>::from_json(value));
  }
};
template <class Value>
struct Member<std::vector<Value>> {
  static void describe(OptionInfo& info) { Member<Value>::describe(info), info.is_list = true; }
  static Json to_json(const std::vector<Value>& values) {
    Json list = Json::array();
    for (const auto& value : values) list.push_back(Member<Value>::to_json(value));
    return list;
  }
  static std::vector<Value> from_json(const Json& list) {
    std::vector<Value> values;
    for (const auto& value : list) values.push_back(Member<Value>::from_json(value));
    return values;
  }
};

}  // namespace detail

/// The names of an enumeration's values, for an option that chooses among them.
template <class Enum>
using Choices = std::vector<std::pair<std::string, Enum>>;

/// The options of struct `Owner`: a name, a member, what it accepts and a sentence each. Defaults are the members' own.
template <class Owner>
class Options : public OptionSet {
 public:
  Options() {
    make_ = [] { return std::make_shared<Owner>(); };
  }

  template <class Value>
  Options& option(std::string name, Value Owner::*member, NumberRange range, std::string help,
                  std::string source = "") {
    using M = detail::Member<Value>;
    OptionInfo info{.name = std::move(name), .range = range, .help = std::move(help), .source = std::move(source)};
    M::describe(info);
    info.fallback = M::to_json(Owner{}.*member);
    options_.push_back(
        {.info = std::move(info),
         .store = [member](void* owner, const Json& v) { static_cast<Owner*>(owner)->*member = M::from_json(v); },
         .load = [member](const void* owner) { return M::to_json(static_cast<const Owner*>(owner)->*member); }});
    return *this;
  }

  template <class Value>
  Options& option(std::string name, Value Owner::*member, std::string help, std::string source = "") {
    return option(std::move(name), member, NumberRange{}, std::move(help), std::move(source));
  }

  /// A text, or a list of texts, that must be among the given ones.
  template <class Value>
  Options& option(std::string name, Value Owner::*member, std::vector<std::string> choices, std::string help,
                  std::string source = "") {
    option(std::move(name), member, NumberRange{}, std::move(help), std::move(source));
    options_.back().info.type = OptionType::choice;
    options_.back().info.choices = std::move(choices);
    return *this;
  }

  template <class Enum>
  requires std::is_enum_v<Enum> Options& option(std::string name, Enum Owner::*member, Choices<Enum> choices,
                                                std::string help, std::string source = "") {
    return choice<Enum>(
        std::move(name), std::move(choices), std::move(help), std::move(source), member,
        [](const Json& value, const auto& parse) { return parse(value); },
        [](Enum value, const auto& print) { return print(value); });
  }
  template <class Enum>
  requires std::is_enum_v<Enum> Options& option(std::string name, std::vector<Enum> Owner::*member,
                                                Choices<Enum> choices, std::string help, std::string source = "") {
    choice<Enum>(
        std::move(name), std::move(choices), std::move(help), std::move(source), member,
        [](const Json& list, const auto& parse) {
          std::vector<Enum> values;
          for (const Json& value : list) values.push_back(parse(value));
          return values;
        },
        [](const std::vector<Enum>& values, const auto& print) {
          Json list = Json::array();
          for (const Enum value : values) list.push_back(print(value));
          return list;
        });
    options_.back().info.is_list = true;
    return *this;
  }

 private:
  template <class Enum, class Value, class FromJson, class ToJson>
  Options& choice(std::string name, Choices<Enum> choices, std::string help, std::string source, Value Owner::*member,
                  FromJson from_json, ToJson to_json) {
    OptionInfo info{
        .name = std::move(name), .type = OptionType::choice, .help = std::move(help), .source = std::move(source)};
    for (const auto& [text, value] : choices) info.choices.push_back(text);
    const auto parse = [choices](const Json& text) {
      for (const auto& [known, value] : choices) {
        if (known == text.get<std::string>()) return value;
      }
      return choices.front().second;  // not reached: the text was checked against info.choices
    };
    const auto print = [choices](Enum value) {
      for (const auto& [text, known] : choices) {
        if (known == value) return Json(text);
      }
      return Json();
    };
    info.fallback = to_json(Owner{}.*member, print);
    options_.push_back(
        {.info = std::move(info),
         .store = [=](void* owner, const Json& v) { static_cast<Owner*>(owner)->*member = from_json(v, parse); },
         .load = [=](const void* owner) { return Json(to_json(static_cast<const Owner*>(owner)->*member, print)); }});
    return *this;
  }
};

}  // namespace kullback
