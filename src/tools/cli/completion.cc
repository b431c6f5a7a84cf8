#include "tools/cli/completion.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>

#include "gpulet/base/text.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"
#include "tools/cli/target_options.h"

namespace gpulet::tools {
namespace {

// The direct subcommands of a command.
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

// Quotes for bash and zsh: the quoted text ends before an apostrophe and continues after it.
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

// Quotes for fish, which knows \' and \\ within single quotes.
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

// The branches of a shell's `case "command option"`: one for each option with choices, which runs
// choose(choices), and one for all options that take a file (`files`) or a model (`models`).
template <typename Choose>
std::string value_cases(const CompletedProgram& program, std::string_view files,
                        std::string_view models, Choose choose) {
  std::vector<std::string> file_options;
  std::vector<std::string> model_options;
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
      std::vector<std::string>& others =
          option.candidates == Candidates::models ? model_options : file_options;
      others.insert(others.end(), patterns.begin(), patterns.end());
    }
  }
  for (const auto& [patterns, branch] :
       {std::pair(&file_options, files), std::pair(&model_options, models)}) {
    if (patterns->empty()) continue;
    cases += "    " + joined(*patterns, "|") + ") ";
    cases += branch;
    cases += " ;;\n";
  }
  return cases;
}

// The options that select the frontend; `completion models` gets them as well.
constexpr std::string_view kTargetFlags = "--target|--tls-authority|--token-file";

std::string zsh_entry(const std::string& name, const std::string& description) {
  std::string escaped;
  for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(description.empty() ? escaped : escaped + ':' + description);
}

// ---- gpulet completion

// The choices are part of the type name (one_of): "TEXT:{bash,zsh,fish}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.rfind('}');
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos || end < begin) return choices;
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

Candidates candidates_of(const CLI::Option& option) {
  return option.get_type_name() == kModelName ? Candidates::models : Candidates::files;
}

void collect(const CLI::App& app, const std::string& path, CompletedProgram& program) {
  CompletedCommand command{path, app.get_description(), {}};
  for (const CLI::Option* const option : app.get_options()) {
    CompletedOption completed{{},
                              option->get_description(),
                              option->get_items_expected_max() > 0,
                              choices_of(*option),
                              candidates_of(*option)};
    for (const std::string& name : option->get_snames()) completed.names.push_back('-' + name);
    for (const std::string& name : option->get_lnames()) completed.names.push_back("--" + name);
    if (completed.names.empty()) {
      command.choices = completed.choices;
      command.candidates = completed.candidates;
    } else {
      command.options.push_back(std::move(completed));
    }
  }
  program.push_back(std::move(command));
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    collect(*one, path + ' ' + one->get_name(), program);
}

int print_completion(const CLI::App& app, const std::string& shell) {
  CompletedProgram program;
  collect(app, app.get_name(), program);
  if (shell == "bash") std::cout << bash_completion(program);
  if (shell == "zsh") std::cout << zsh_completion(program);
  if (shell == "fish") std::cout << fish_completion(program);
  return kSucceeded;
}

// Gives up quickly, because a user waits for the completion.
int print_models(const TargetOptions& options) {
  constexpr Duration kTimeout = std::chrono::seconds(1);
  const Result<load::Target> target = find_target(options);
  if (!target.ok()) return bad_input(target.status());
  const auto models = load::fetch_models(target.value(), kTimeout);
  if (!models.ok()) return run_failed(models.status());
  for (const ModelInfo& model : models.value()) std::cout << model.name << '\n';
  return kSucceeded;
}

}  // namespace

std::string bash_completion(const CompletedProgram& program) {
  const std::string& name = program.front().path;
  // Bash splits words at colons.
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
  // An empty reply makes bash complete files.
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
    if (command.candidates == Candidates::models)
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
    if (command.candidates == Candidates::models)
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
    if (command.choices.empty() && command.candidates == Candidates::models)
      text += here + " -f -a " + fish_quoted(models) + '\n';
    for (const CompletedOption& option : command.options) {
      text += here;
      for (const std::string& one : option.names)
        text += one.starts_with("--") ? " -l " + one.substr(2) : " -s " + one.substr(1);
      if (option.takes_value) text += " -r";
      if (!option.choices.empty()) {
        text += " -f -a " + fish_quoted(joined(option.choices, " "));
      } else if (option.candidates == Candidates::models) {
        text += " -f -a " + fish_quoted(models);
      }
      text += " -d " + fish_quoted(option.description) + '\n';
    }
  }
  return text;
}

void add_completion_command(CLI::App& app, Action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "completion", "print a script that completes the command line of this program in a shell");
  const auto shell = std::make_shared<std::string>();
  const auto target = std::make_shared<TargetOptions>();
  command
      ->add_option("shell", *shell,
                   "the shell; \"models\" prints the names of a frontend's models for the scripts")
      ->required()
      ->check(one_of({"bash", "zsh", "fish", "models"}));
  add_target_options(*command, *target);
  command->footer(
      "bash: source <(gpulet completion bash). zsh: save it as _gpulet in a folder of fpath. fish: "
      "gpulet completion fish | source. Packages install the scripts.");
  command->callback([&app, shell, target, &chosen] {
    chosen = [&app, shell, target] {
      return *shell == "models" ? print_models(*target) : print_completion(app, *shell);
    };
  });
}

}  // namespace gpulet::tools
