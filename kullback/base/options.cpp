#include "kullback/base/options.h"

#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"
#include "kullback/base/suggest.h"

namespace kullback {
namespace {

Json parse_number(const OptionInfo& info, std::string_view text) {
  const auto value = parsed_number(text);
  if (!value) fail("option --{}: \"{}\" is not a number", info.name, text);
  return *value;
}

Json parse_integer(const OptionInfo& info, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail("option --{}: {} is too large", info.name, text);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail("option --{}: \"{}\" is not a whole number", info.name, text);
  }
  return value;
}

Json parse_one(const OptionInfo& info, std::string_view text) {
  if (info.may_be_off && text == "off") return Json();
  switch (info.type) {
    case OptionType::flag:
      if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
      if (text == "false" || text == "no" || text == "off" || text == "0") return false;
      fail("option --{}: \"{}\" is neither true nor false", info.name, text);
    case OptionType::integer: return parse_integer(info, text);
    case OptionType::number: return parse_number(info, text);
    default: return std::string(text);
  }
}

void check_number(const OptionInfo& info, double value) {
  if (!info.range.contains(value)) {
    fail("option --{}: {} is out of range, must be {}{}", info.name, option_text(value), info.range.text(),
         info.may_be_off ? " or off" : "");
  }
}

Json checked_one(const OptionInfo& info, const Json& value) {
  if (value.is_null() || (value.is_string() && value == "off" && info.may_be_off)) {
    if (!info.may_be_off) fail("option --{} needs a value ({})", info.name, info.type_text());
    return Json();
  }
  switch (info.type) {
    case OptionType::flag:
      if (!value.is_boolean()) fail("option --{}: {} is neither true nor false", info.name, value.dump());
      return value;
    case OptionType::integer: {
      const bool whole = value.is_number_integer() ||
                         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
                          std::fabs(value.get<double>()) < 9e15);
      if (!whole) fail("option --{}: {} is not a whole number", info.name, value.dump());
      check_number(info, value.get<double>());
      return value.get<int64_t>();
    }
    case OptionType::number:
      if (!value.is_number()) fail("option --{}: {} is not a number", info.name, value.dump());
      check_number(info, value.get<double>());
      return value.get<double>();
    case OptionType::text:
      if (!value.is_string()) fail("option --{}: {} is not a text", info.name, value.dump());
      return value;
    case OptionType::choice: {
      if (!value.is_string()) fail("option --{}: {} is not a text", info.name, value.dump());
      const std::string text = canonical_option_name(value.get<std::string>());
      for (const std::string& choice : info.choices) {
        if (canonical_option_name(choice) == text) return choice;
      }
      fail("option --{}: unknown value \"{}\"{}; it is one of {}", info.name, value.get<std::string>(),
           suggestion(text, info.choices), listing(info.choices));
    }
  }
  return value;
}

}  // namespace

bool NumberRange::contains(double value) const {
  const bool above = minimum_excluded ? value > minimum : value >= minimum;
  const bool below = maximum_excluded ? value < maximum : value <= maximum;
  return above && below;
}

std::string NumberRange::text() const {
  const bool low = minimum > -unbounded, high = maximum < unbounded;
  if (low && high) {
    return fmt::format("in {}{:g}, {:g}{}", minimum_excluded ? '(' : '[', minimum, maximum,
                       maximum_excluded ? ')' : ']');
  }
  if (low) return fmt::format("{} {:g}", minimum_excluded ? ">" : ">=", minimum);
  if (high) return fmt::format("{} {:g}", maximum_excluded ? "<" : "<=", maximum);
  return "";
}

std::string OptionInfo::type_text() const {
  std::string text;
  switch (type) {
    case OptionType::flag: text = "true or false"; break;
    case OptionType::integer: text = "whole number"; break;
    case OptionType::number: text = "number"; break;
    case OptionType::text: text = "text"; break;
    case OptionType::choice: text = (is_list ? "any of " : "one of ") + listing(choices); break;
  }
  if (is_list && type != OptionType::choice) text += "s";
  const bool numeric = type == OptionType::integer || type == OptionType::number;
  if (numeric && !range.text().empty()) text += " " + range.text();
  if (is_list) text += ", separated by commas";
  return may_be_off ? text + ", or off" : text;
}

Json OptionInfo::parse(std::string_view text) const {
  if (!is_list) return checked(parse_one(*this, text));
  Json values = Json::array();
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    values.push_back(parse_one(*this, text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return checked(values);
}

Json OptionInfo::checked(const Json& value) const {
  if (!is_list) return checked_one(*this, value);
  if (!value.is_array()) return Json::array({checked_one(*this, value)});
  Json values = Json::array();
  for (const Json& one : value) values.push_back(checked_one(*this, one));
  return values;
}

std::string option_text(const Json& value) {
  if (value.is_null()) return "off";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : ",") + option_text(one);
  return text;
}

std::string canonical_option_name(std::string_view name) {
  std::string canonical(name);
  for (char& c : canonical) c = c == '_' ? '-' : c;
  return canonical;
}

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.info.name);
  return names;
}

const Option* OptionSet::find(std::string_view name) const {
  const std::string canonical = canonical_option_name(name);
  for (const Option& option : options_) {
    if (option.info.name == canonical) return &option;
  }
  return nullptr;
}

void OptionSet::assign(void* owner, const Json& values, const std::string& where) const {
  for (const auto& [name, value] : values.items()) {
    const Option* option = find(name);
    if (option == nullptr)
      fail("{}: unknown option \"{}\"{}", where, name, suggestion(canonical_option_name(name), names()));
    try {
      option->store(owner, option->info.checked(value));
    } catch (const Error& error) {
      fail("{}: {}", where, error.what());
    }
  }
}

Json OptionSet::values(const void* owner) const {
  Json values = Json::object();
  for (const Option& option : options_) values[option.info.name] = option.load(owner);
  return values;
}

}  // namespace kullback
