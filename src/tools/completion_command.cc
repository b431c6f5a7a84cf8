// gpulet completion: a script for a shell, from what the commands declare.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/completion.h"

namespace gpulet::tools {
namespace {

// The choices of a value stand in its type's name: "TEXT:{bash,zsh,fish}".
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

void add(const CLI::App& app, const std::string& path, CompletedProgram& program) {
  CompletedCommand command{path, app.get_description(), {}};
  for (const CLI::Option* const option : app.get_options()) {
    CompletedOption completed{
        {}, option->get_description(), option->get_items_expected_max() > 0, choices_of(*option)};
    for (const std::string& name : option->get_snames()) completed.names.push_back('-' + name);
    for (const std::string& name : option->get_lnames()) completed.names.push_back("--" + name);
    if (completed.names.empty()) {
      command.choices = completed.choices;
    } else {
      command.options.push_back(std::move(completed));
    }
  }
  program.push_back(std::move(command));
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    add(*one, path + ' ' + one->get_name(), program);
}

int print_completion(const CLI::App& app, const std::string& shell) {
  CompletedProgram program;
  add(app, app.get_name(), program);
  if (shell == "bash") std::cout << bash_completion(program);
  if (shell == "zsh") std::cout << zsh_completion(program);
  if (shell == "fish") std::cout << fish_completion(program);
  return kSucceeded;
}

}  // namespace

void add_completion_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "completion", "print a script that completes this program's command line in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "for which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "bash: source <(gpulet completion bash). zsh: save it as _gpulet in a folder of fpath. fish: "
      "gpulet completion fish | source. An installation brings them along.");
  command->callback(
      [&app, shell, &chosen] { chosen = [&app, shell] { return print_completion(app, *shell); }; });
}

}  // namespace gpulet::tools
