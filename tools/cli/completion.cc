// hostir completion: scripts made of the parser's description of itself.
#include <cstdio>
#include <string_view>

#include "csrc/base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/options.h"

namespace hir::cli {
namespace {

using base::Cat;

std::string OptionNames(const CommandWords& command) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options) names.push_back(option.name);
  return base::Join(names, " ");
}

std::string CommandNames(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) names.push_back(command.name);
  return base::Join(names, " ");
}

// `text` in single quotes of a shell, which ends and begins them around a quote of its own.
std::string ShellQuoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += quote : out += c;
  return out + "'";
}

// What completes a value: of bash, `compgen` and its flags.
std::string BashValue(const OptionWords& option) {
  if (!option.choices.empty()) return Cat("-W \"", base::Join(option.choices, " "), "\"");
  if (option.value == "DIR") return "-d";
  return option.value == "FILE" ? "-f" : "";
}

// What compgen says goes to COMPREPLY line by line: a file's name may hold spaces, and stars.
std::string Bash(const std::vector<CommandWords>& commands) {
  std::string out =
      Cat("# bash completion of hostir: source <(hostir completion bash)\n"
          "_hostir() {\n"
          "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} "
          "command=${COMP_WORDS[1]}\n"
          "  COMPREPLY=()\n"
          "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"",
          CommandNames(commands),
          " --help --version\" -- \"$current\")\n"
          "    return\n"
          "  fi\n"
          "  case $command in\n");
  for (const CommandWords& command : commands) {
    base::Append(out, "    ", command.name, ")\n      case $previous in\n");
    for (const OptionWords& option : command.options) {
      if (option.value.empty()) continue;
      const std::string value = BashValue(option);
      base::Append(
          out, "        ", option.name, ") ",
          value.empty() ? "return" : Cat("mapfile -t COMPREPLY < <(compgen ", value, " -- \"$current\"); return"),
          " ;;\n");
    }
    base::Append(out, "      esac\n      case $current in\n        -*) mapfile -t COMPREPLY < <(compgen -W \"",
                 OptionNames(command), "\" -- \"$current\") ;;\n");
    if (command.takes_program) {
      out +=
          "        *) mapfile -t COMPREPLY < <(compgen -d -S / -- \"$current\" ; compgen -f -X "
          "'!*.hir' -- "
          "\"$current\") ;;\n";
    } else if (!command.choices.empty()) {
      base::Append(out, "        *) mapfile -t COMPREPLY < <(compgen -W \"", base::Join(command.choices, " "),
                   "\" -- \"$current\") ;;\n");
    }
    out += "      esac ;;\n";
  }
  return out + "  esac\n}\ncomplete -o filenames -F _hostir hostir\n";
}

// A description inside an _arguments specification: brackets and colons mean something there.
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string ZshValue(const OptionWords& option) {
  if (option.value.empty()) return "";
  const std::string action = !option.choices.empty()  ? Cat("(", base::Join(option.choices, " "), ")")
                             : option.value == "DIR"  ? "_files -/"
                             : option.value == "FILE" ? "_files"
                                                      : " ";
  return Cat(":", ZshText(option.value), ":", action);
}

std::string Zsh(const std::vector<CommandWords>& commands) {
  const auto quoted = [](std::string_view text) { return ShellQuoted(text, "'\\''"); };
  std::string out =
      "#compdef hostir\n"
      "_hostir() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const CommandWords& command : commands)
    base::Append(out, "    ", quoted(Cat(command.name, ":", ZshText(command.what))), "\n");
  out +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const CommandWords& command : commands) {
    base::Append(out, "    ", command.name, ") _arguments");
    for (const OptionWords& option : command.options)
      base::Append(
          out, " \\\n      ",
          quoted(Cat(option.repeats ? "*" : "", option.name, "[", ZshText(option.what), "]", ZshValue(option))));
    if (command.takes_program) base::Append(out, " \\\n      ", quoted("1:program:_files -g \"*.hir\""));
    if (!command.choices.empty())
      base::Append(out, " \\\n      ", quoted(Cat("1:what:(", base::Join(command.choices, " "), ")")));
    out += " ;;\n";
  }
  return out + "  esac\n}\n_hostir \"$@\"\n";
}

std::string Fish(const std::vector<CommandWords>& commands) {
  const auto quoted = [](std::string_view text) { return ShellQuoted(text, "\\'"); };
  std::string out = "# fish completion of hostir\ncomplete -c hostir -f\n";
  for (const CommandWords& command : commands) {
    base::Append(out, "complete -c hostir -n __fish_use_subcommand -a ", command.name, " -d ", quoted(command.what),
                 "\n");
    const std::string when = Cat("complete -c hostir -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const OptionWords& option : command.options) {
      base::Append(out, when, " -l ", option.name.substr(2));
      if (!option.choices.empty()) {
        base::Append(out, " -x -a ", quoted(base::Join(option.choices, " ")));
      } else if (!option.value.empty()) {
        out += option.value == "DIR" || option.value == "FILE" ? " -r -F" : " -x";
      }
      base::Append(out, " -d ", quoted(option.what), "\n");
    }
    if (command.takes_program) base::Append(out, when, " -F\n");
    if (!command.choices.empty()) base::Append(out, when, " -a ", quoted(base::Join(command.choices, " ")), "\n");
  }
  return out;
}

}  // namespace

Outcome PrintCompletion(const Options& options) {
  const std::vector<CommandWords> commands = DescribeCommands();
  const std::string script = options.shell == "bash"  ? Bash(commands)
                             : options.shell == "zsh" ? Zsh(commands)
                                                      : Fish(commands);
  return WriteOutput(script);
}

}  // namespace hir::cli
