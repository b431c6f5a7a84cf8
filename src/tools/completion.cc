#include "tools/completion.h"

#include <algorithm>

namespace gpulet::tools {
namespace {

// The commands right below that one.
std::vector<const CompletedCommand*> below(const CompletedProgram& program,
                                           const CompletedCommand& command) {
  std::vector<const CompletedCommand*> found;
  for (const CompletedCommand& other : program) {
    const std::size_t length = command.path.size();
    if (other.path.size() > length + 1 && other.path.starts_with(command.path + ' ') &&
        other.path.find(' ', length + 1) == std::string::npos)
      found.push_back(&other);
  }
  return found;
}

std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

// In single quotes, for bash and zsh: what is quoted ends before an apostrophe and begins after it.
std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += R"('\'')";
    } else {
      quoted += c == '\n' ? ' ' : c;
    }
  }
  return quoted + '\'';
}

// fish knows \' and \\ within single quotes.
std::string fish_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + '\'';
}

// "'gpulet models load'|'gpulet models list'": the paths of all commands below the program.
std::string paths_pattern(const CompletedProgram& program) {
  std::vector<std::string> paths;
  for (const CompletedCommand& command : program) {
    if (&command != &program.front()) paths.push_back(shell_quoted(command.path));
  }
  return joined(paths, "|");
}

// The cases of a shell's `case "command option"`: all options whose value may be a file together,
// with `files`, all that take a model's name, with `models`, and each of those with choices, with
// what `choose` prints for them.
template <typename Choose>
std::string value_cases(const CompletedProgram& program, std::string_view files,
                        std::string_view models, Choose choose) {
  std::vector<std::string> plain;
  std::vector<std::string> named;
  std::string cases;
  for (const CompletedCommand& command : program) {
    for (const CompletedOption& option : command.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(shell_quoted(command.path + ' ' + name));
      if (!option.choices.empty()) {
        cases += "    " + joined(patterns, "|") + ") " + choose(option.choices) + "; return ;;\n";
        continue;
      }
      std::vector<std::string>& together = option.offer == Offer::models ? named : plain;
      together.insert(together.end(), patterns.begin(), patterns.end());
    }
  }
  for (const auto& [patterns, offered] : {std::pair(&plain, files), std::pair(&named, models)}) {
    if (patterns->empty()) continue;
    cases += "    " + joined(*patterns, "|") + ") ";
    cases += offered;
    cases += " ;;\n";
  }
  return cases;
}

// The flags that say which frontend, which the question for its models repeats.
constexpr std::string_view kTargetFlags = "--target|--tls-authority|--token-file";

std::string zsh_entry(const std::string& name, const std::string& description) {
  std::string escaped;
  for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(description.empty() ? escaped : escaped + ':' + description);
}

}  // namespace

std::string bash_completion(const CompletedProgram& program) {
  const std::string& name = program.front().path;
  // Bash ends words at a colon.
  std::string text =
      "# Completion of " + name + " for bash, made by `" + name + " completion bash`.\n_" + name +
      "_models() {\n  local index value flags=()\n"
      "  for ((index = 1; index < ${#COMP_WORDS[@]} - 1; index++)); do\n"
      "    case ${COMP_WORDS[index]} in\n      " +
      std::string(kTargetFlags) +
      ")\n        value=${COMP_WORDS[index+1]}\n"
      "        if [[ ${COMP_WORDS[index+2]-} == : ]]; then "
      "value+=:${COMP_WORDS[index+3]-}; fi\n"
      "        flags+=(\"${COMP_WORDS[index]}\" \"$value\") ;;\n    esac\n  done\n  " +
      name + " completion models \"${flags[@]}\" 2>/dev/null\n}\n_" + name +
      "() {\n  local current=${COMP_WORDS[COMP_CWORD]} "
      "previous=${COMP_WORDS[COMP_CWORD-1]}\n  local chain=" +
      name +
      " options= words= index\n  COMPREPLY=()\n"
      "  for ((index = 1; index < COMP_CWORD; index++)); do\n"
      "    case \"$chain ${COMP_WORDS[index]}\" in\n      " +
      paths_pattern(program) +
      ") chain+=\" ${COMP_WORDS[index]}\" ;;\n    esac\n  done\n"
      "  case \"$chain $previous\" in\n";
  // Nothing offered: bash's default, which is files.
  const std::string models =
      "mapfile -t COMPREPLY < <(compgen -W \"$(_" + name + "_models)\" -- \"$current\"); return";
  text += value_cases(program, "return", models, [](const std::vector<std::string>& choices) {
    return "mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(joined(choices, " ")) +
           " -- \"$current\")";
  });
  text += "  esac\n  case $chain in\n";
  for (const CompletedCommand& command : program) {
    std::vector<std::string> options;
    for (const CompletedOption& option : command.options)
      options.insert(options.end(), option.names.begin(), option.names.end());
    std::vector<std::string> words = command.choices;
    for (const CompletedCommand* const one : below(program, command))
      words.push_back(last_word(one->path));
    text += "    " + shell_quoted(command.path) +
            ") options=" + shell_quoted(joined(options, " ")) +
            " words=" + shell_quoted(joined(words, " "));
    if (command.offer == Offer::models)
      text += "\n      [[ $current == -* ]] || words=$(_" + name + "_models)";
    text += " ;;\n";
  }
  text +=
      "  esac\n  [[ $current != -* ]] || words=$options\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\n"
      "complete -o default -F _" +
      name + ' ' + name + '\n';
  return text;
}

std::string zsh_completion(const CompletedProgram& program) {
  const std::string& name = program.front().path;
  std::string text = "#compdef " + name + "\n# Completion of " + name + " for zsh, made by `" +
                     name + " completion zsh`.\n_" + name +
                     "_models() {\n  local -a flags names\n  local index\n"
                     "  for ((index = 2; index < CURRENT; index++)); do\n"
                     "    case ${words[index]} in\n      " +
                     std::string(kTargetFlags) +
                     ") flags+=(${words[index]} ${words[index+1]}) ;;\n    esac\n  done\n"
                     "  names=(${(f)\"$(" +
                     name + " completion models $flags 2>/dev/null)\"})\n  compadd -a names\n}\n_" +
                     name + "() {\n  local chain=" + name +
                     " index\n  local -a options words_here\n"
                     "  for ((index = 2; index < CURRENT; index++)); do\n"
                     "    case \"$chain ${words[index]}\" in\n      " +
                     paths_pattern(program) +
                     ") chain+=\" ${words[index]}\" ;;\n    esac\n  done\n"
                     "  case \"$chain ${words[CURRENT-1]}\" in\n";
  text += value_cases(program, "_files; return", "_" + name + "_models; return",
                      [](const std::vector<std::string>& choices) {
                        std::vector<std::string> quoted;
                        quoted.reserve(choices.size());
                        for (const std::string& choice : choices)
                          quoted.push_back(shell_quoted(choice));
                        return "compadd -- " + joined(quoted, " ");
                      });
  text += "  esac\n  case $chain in\n";
  for (const CompletedCommand& command : program) {
    std::vector<std::string> options;
    for (const CompletedOption& option : command.options) {
      for (const std::string& one : option.names)
        options.push_back(zsh_entry(one, option.description));
    }
    std::vector<std::string> words;
    for (const std::string& choice : command.choices) words.push_back(zsh_entry(choice, ""));
    for (const CompletedCommand* const one : below(program, command))
      words.push_back(zsh_entry(last_word(one->path), one->description));
    text += "    " + shell_quoted(command.path) + ")\n      options=(" +
            joined(options, "\n        ") + ")\n      words_here=(" + joined(words, "\n        ") +
            ")";
    if (command.offer == Offer::models)
      text += "\n      if [[ $PREFIX != -* ]]; then _" + name + "_models; return; fi";
    text += " ;;\n";
  }
  text +=
      "  esac\n  if [[ $PREFIX == -* ]]; then\n    _describe -o option options\n"
      "  elif (( ${#words_here} )); then\n    _describe command words_here\n"
      "  else\n    _files\n  fi\n}\n"
      "if [[ $funcstack[1] == _" +
      name + " ]]; then\n  _" + name + " \"$@\"\nelse\n  compdef _" + name + ' ' + name + "\nfi\n";
  return text;
}

std::string fish_completion(const CompletedProgram& program) {
  const std::string& name = program.front().path;
  const std::string chain = "__" + name + "_chain";
  const std::string models = "(__" + name + "_models)";
  std::string text =
      "# Completion of " + name + " for fish, made by `" + name +
      " completion fish`.\nfunction __" + name +
      "_models\n  set -l flags\n  set -l words (commandline -opc)\n"
      "  for index in (seq (count $words))\n    switch $words[$index]\n"
      "      case --target --tls-authority --token-file\n"
      "        set -a flags $words[$index] $words[(math $index + 1)]\n    end\n  end\n  " +
      name + " completion models $flags 2>/dev/null\nend\nfunction " + chain + "\n  set -l chain " +
      name +
      "\n  for word in (commandline -opc)[2..-1]\n    switch \"$chain $word\"\n"
      "      case";
  for (const CompletedCommand& command : program) {
    if (&command != &program.front()) text += ' ' + fish_quoted(command.path);
  }
  text +=
      "\n        set chain \"$chain $word\"\n    end\n  end\n  test \"$chain\" = \"$argv\"\nend\n";
  for (const CompletedCommand& command : program) {
    const std::string here =
        "complete -c " + name + " -n " + fish_quoted(chain + ' ' + command.path);
    const auto commands = below(program, command);
    for (const CompletedCommand* const one : commands)
      text += here + " -f -a " + fish_quoted(last_word(one->path)) + " -d " +
              fish_quoted(one->description) + '\n';
    if (!command.choices.empty())
      text += here + " -f -a " + fish_quoted(joined(command.choices, " ")) + '\n';
    if (command.choices.empty() && command.offer == Offer::models)
      text += here + " -f -a " + fish_quoted(models) + '\n';
    for (const CompletedOption& option : command.options) {
      text += here;
      for (const std::string& one : option.names)
        text += one.starts_with("--") ? " -l " + one.substr(2) : " -s " + one.substr(1);
      if (option.takes_value) text += " -r";
      if (!option.choices.empty()) {
        text += " -f -a " + fish_quoted(joined(option.choices, " "));
      } else if (option.offer == Offer::models) {
        text += " -f -a " + fish_quoted(models);
      }
      text += " -d " + fish_quoted(option.description) + '\n';
    }
  }
  return text;
}

}  // namespace gpulet::tools
