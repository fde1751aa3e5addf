// What shells know of the program: completion for bash and zsh, made from the commands' own declarations.
#include "cli/completion.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/divergence.h"

namespace kullback {
namespace {

bool is_switch(const OptionInfo& info) { return info.type == OptionType::flag && !info.is_list; }

/// Adds an option, or to one of that name the choices that it lacks.
void add(std::vector<OptionInfo>& all, const OptionInfo& info) {
  const auto same = std::find_if(all.begin(), all.end(), [&](const OptionInfo& o) { return o.name == info.name; });
  if (same == all.end()) return all.push_back(info);
  for (const std::string& choice : info.choices) {
    const auto found = std::find(same->choices.begin(), same->choices.end(), choice);
    if (found == same->choices.end()) same->choices.push_back(choice);
  }
}

/// The options and names of the methods that a command runs.
void add_methods(Declaration& declared) {
  const auto method = std::find_if(declared.options.begin(), declared.options.end(),
                                   [](const OptionInfo& info) { return info.name == "method"; });
  if (method == declared.options.end() || !method->choices.empty()) return;
  const Family family = declared.command.name() == "distill" ? Family::distillation : Family::alignment;
  std::vector<OptionInfo> options;
  for (const Method& one : methods()) {
    if (one.family != family || !one.recipe.has_value()) continue;
    method->choices.push_back(one.name);
    if (one.options == nullptr) continue;
    for (const Option& option : one.options->list()) options.push_back(option.info);
  }
  for (const OptionInfo& info : options) add(declared.options, info);
}

std::vector<std::string> argument_words(const std::string& command) {
  if (command == "completion") return {"bash", "zsh"};
  if (command == "teacher") return {"record", "inspect"};
  if (command == "diagnose") return {"gradients"};
  std::vector<std::string> names;
  if (command == "explain") {
    for (const Method& method : methods()) names.push_back(method.name);
    for (const DivergenceInfo& info : known_divergences()) names.push_back(info.name);
  }
  return names;
}

/// As it is written on the command line: a switch can also be turned off.
std::vector<std::string> flags(const std::vector<OptionInfo>& options) {
  std::vector<std::string> words;
  for (const OptionInfo& info : options) {
    words.push_back("--" + info.name);
    if (is_switch(info) && info.name != "help") words.push_back("--no-" + info.name);
  }
  return words;
}

/// Inside single quotes of a shell.
std::string in_single_quotes(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result;
}

/// A sentence inside a specification of zsh's _arguments or _describe, where colons and brackets separate.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return in_single_quotes(result);
}

std::string zsh_option(const OptionInfo& info) {
  if (is_switch(info)) {
    std::string text = fmt::format("        '--{}[{}]'", info.name, zsh_text(info.help));
    if (info.name != "help") text += fmt::format(" '--no-{}[not\\: {}]'", info.name, zsh_text(info.help));
    return text + " \\\n";
  }
  const std::string action = info.choices.empty() ? "_files"
                             : info.is_list       ? fmt::format("_values -s , value {}", fmt::join(info.choices, " "))
                                                  : fmt::format("({})", fmt::join(info.choices, " "));
  return fmt::format("        '--{}=[{}]:{}:{}' \\\n", info.name, zsh_text(info.help), zsh_text(info.type_text()),
                     action);
}

}  // namespace

const std::vector<OptionInfo>& general_options() {
  static const std::vector<OptionInfo> options{
      {.name = "threads", .type = OptionType::integer, .range = at_least(1), .help = "threads to compute with"},
      {.name = "quiet", .type = OptionType::flag, .help = "no progress, no notes"},
      {.name = "verbose", .type = OptionType::flag, .help = "say more"},
      {.name = "version", .type = OptionType::flag, .help = "the version"},
  };
  return options;
}

std::vector<Declaration> declarations() {
  std::vector<Declaration> all;
  for (const Program& program : programs()) {
    Declaration declared{.command = program.describe(), .options = {}, .words = argument_words(program.name)};
    for (const Command::Group& group : declared.command.groups()) {
      for (const Option& option : group.set->list()) add(declared.options, option.info);
    }
    add_methods(declared);
    declared.options.push_back({.name = "config", .help = "TOML file with any of these options; flags override it"});
    declared.options.push_back({.name = "help", .type = OptionType::flag, .help = "explain the command"});
    all.push_back(std::move(declared));
  }
  return all;
}

std::string bash_completion() {
  const std::vector<Declaration> all = declarations();
  std::vector<std::string> names, general;
  for (const Declaration& one : all) names.push_back(one.command.name());
  for (const OptionInfo& info : general_options()) general.push_back("--" + info.name);
  std::string values, options, words;
  for (const Declaration& one : all) {
    const std::string& name = one.command.name();
    for (const OptionInfo& info : one.options) {
      if (is_switch(info)) continue;
      const std::string reply =
          info.choices.empty()
              ? ""
              : fmt::format("known='{}'", in_single_quotes(fmt::format("{}", fmt::join(info.choices, " "))));
      values += fmt::format("    '{} --{}') {};;\n", name, info.name, reply.empty() ? "return " : reply + " ");
    }
    options += fmt::format("      '{}') known='{} {}' ;;\n", name, fmt::join(flags(one.options), " "),
                           fmt::join(general, " "));
    if (!one.words.empty()) words += fmt::format("      '{}') known='{}' ;;\n", name, fmt::join(one.words, " "));
  }
  return fmt::format(R"(# bash completion of kullback; for this shell: source <(kullback completion bash)
_kullback() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command= known= i
  COMPREPLY=()  # left empty, files are offered
  if [[ $word == '=' ]]; then word=; elif [[ $before == '=' ]]; then before=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      --threads) ((++i)) ;;
      -*) ;;
      *) command=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{} {}' -- "$word")
    return
  fi
  case "$command $before" in
{}  esac
  if [[ -z $known && $word == -* ]]; then
    case $command in
{}    esac
  elif [[ -z $known ]]; then
    case $command in
{}    esac
  fi
  [[ -n $known ]] && mapfile -t COMPREPLY < <(compgen -W "$known" -- "$word")
}}
complete -o default -F _kullback kullback
)",
                     fmt::join(names, " "), fmt::join(general, " "), values, options, words);
}

std::string zsh_completion() {
  std::string commands, cases;
  for (const Declaration& one : declarations()) {
    const std::string& name = one.command.name();
    commands += fmt::format("    '{}:{}'\n", name, zsh_text(one.command.summary()));
    cases += fmt::format("    {})\n      _arguments \\\n", name);
    for (const OptionInfo& info : one.options) cases += zsh_option(info);
    cases += one.words.empty() ? "        '*:file:_files' ;;\n"
                               : fmt::format("        '*:name:({})' ;;\n", fmt::join(one.words, " "));
  }
  std::string general;
  for (const OptionInfo& info : general_options()) {
    general += is_switch(info) ? fmt::format("    '--{}[{}]' \\\n", info.name, zsh_text(info.help))
                               : fmt::format("    '--{}[{}]:number:' \\\n", info.name, zsh_text(info.help));
  }
  return fmt::format(R"(#compdef kullback
# zsh completion of kullback: kullback completion zsh > ~/.zfunc/_kullback, with ~/.zfunc in fpath
_kullback() {{
  local curcontext=$curcontext state line
  local -a commands
  commands=(
{}  )
  _arguments -C \
{}    '1:command:->command' '*::argument:->rest'
  case $state in
    command) _describe command commands ;;
    rest)
    case $words[1] in
{}    esac ;;
  esac
}}
_kullback "$@"
)",
                     commands, general, cases);
}

namespace {

Command describe(std::vector<std::string>& shells) {
  Command command("completion", "complete commands, options and their values in a shell",
                  "Prints a script for the shell: every command, every option, and the values of those that choose.\n"
                  "No --json: what is printed is the script.");
  command.arguments("SHELL", &shells, "bash or zsh", 1, 1)
      .example("source <(kullback completion bash)")
      .example("kullback completion zsh > ~/.zfunc/_kullback");
  return command;
}

int run(const std::vector<std::string>& arguments) {
  std::vector<std::string> shells;
  if (!describe(shells).parse(arguments)) return exit_success;
  if (shells[0] != "bash" && shells[0] != "zsh") {
    fail("kullback completion: unknown shell \"{}\"; it is bash or zsh", shells[0]);
  }
  fmt::print("{}", shells[0] == "bash" ? bash_completion() : zsh_completion());
  return exit_success;
}

const RegisteredProgram program{{"completion", "complete commands, options and their values in bash or zsh",
                                 [] {
                                   static std::vector<std::string> shells;
                                   return describe(shells);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
