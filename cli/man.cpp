// The manual page, made from the commands' own declarations.
#include <fmt/format.h>

#include "cli/completion.h"

namespace kullback {
namespace {

/// Text for roff: dashes stay dashes, and no line begins with a request.
std::string roff(const std::string& text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    line_begins = c == '\n';
  }
  return result;
}

std::string option_entry(const OptionInfo& info) {
  const bool is_switch = info.type == OptionType::flag && !info.is_list;
  std::string text =
      fmt::format(".TP\n\\fB\\-\\-{}\\fR{}\n{}", roff(info.name), is_switch ? "" : " \\fIVALUE\\fR", roff(info.help));
  if (!is_switch) text += fmt::format("; {}", roff(info.type_text()));
  const std::string fallback = option_text(info.fallback);
  if (!is_switch && !fallback.empty() && !info.fallback.is_null()) text += fmt::format("; default {}", roff(fallback));
  return text + "\n";
}

std::string command_section(const Declaration& declared) {
  const Command& command = declared.command;
  std::string text = fmt::format(".SS kullback {}", roff(command.name()));
  for (const Command::Positional& one : command.positionals()) {
    text += fmt::format(fmt::runtime(one.minimum > 0 ? " {}" : " [{}]"), one.name);
    if (one.maximum > 1) text += "...";
  }
  text += fmt::format("\n{}\n", roff(command.summary()));
  if (!command.description().empty()) text += fmt::format(".PP\n{}\n", roff(command.description()));
  for (const Command::Positional& one : command.positionals())
    text += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(one.name), roff(one.help));
  for (const OptionInfo& info : declared.options) text += option_entry(info);
  if (command.examples().empty()) return text;
  text += ".PP\nExamples:\n.PP\n.nf\n";
  for (const std::string& line : command.examples()) text += fmt::format("{}\n", roff(line));
  return text + ".fi\n";
}

Command describe() {
  Command command("man", "print the manual page",
                  "In roff, made from what every command declares.\nNo --json: what is printed is the page.");
  command.example("kullback man > kullback.1");
  return command;
}

int run(const std::vector<std::string>& arguments) {
  if (!describe().parse(arguments)) return exit_success;
  fmt::print("{}", man_page());
  return exit_success;
}

const RegisteredProgram program{{"man", "print the manual page", describe, run}};

}  // namespace

std::string man_page() {
  std::string text = fmt::format(
      ".TH KULLBACK 1 \"\" \"Kullback {}\" \"User Commands\"\n.SH NAME\nkullback \\- learning under a divergence\n"
      ".SH SYNOPSIS\n\\fBkullback\\fR \\fICOMMAND\\fR [options]\n.SH DESCRIPTION\n"
      "Aligns, distils and compares language models with a divergence as objective or limit.\n.SH GENERAL OPTIONS\n",
      KULLBACK_VERSION);
  for (const OptionInfo& info : general_options()) text += option_entry(info);
  text += ".SH COMMANDS\n";
  for (const Declaration& one : declarations()) text += command_section(one);
  return text +
         ".SH EXIT STATUS\n"
         ".TP\n0\nsuccess\n.TP\n1\nthe command worked, and its answer is no: a check or a claim failed\n"
         ".TP\n2\nbad input: one sentence on standard error says what is wrong\n"
         ".TP\n3\na fault of the program itself\n.TP\n130\ninterrupted\n"
         ".SH ENVIRONMENT\n"
         ".TP\nKULLBACK_CACHE\nthe folder of fetched models; else kullback in XDG_CACHE_HOME, else in ~/.cache\n"
         ".TP\nNO_COLOR\nno colours where it is set and not empty; there are none either where the output is no "
         "terminal\n";
}

}  // namespace kullback
