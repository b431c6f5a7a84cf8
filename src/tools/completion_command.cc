// gpulet completion: a script for a shell, from what the commands declare.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/completion.h"
#include "tools/target_options.h"

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

Offer offer_of(const CLI::Option& option) {
  return option.get_type_name() == kModelName ? Offer::models : Offer::files;
}

void add(const CLI::App& app, const std::string& path, CompletedProgram& program) {
  CompletedCommand command{path, app.get_description(), {}};
  for (const CLI::Option* const option : app.get_options()) {
    CompletedOption completed{{},
                              option->get_description(),
                              option->get_items_expected_max() > 0,
                              choices_of(*option),
                              offer_of(*option)};
    for (const std::string& name : option->get_snames()) completed.names.push_back('-' + name);
    for (const std::string& name : option->get_lnames()) completed.names.push_back("--" + name);
    if (completed.names.empty()) {
      command.choices = completed.choices;
      command.offer = completed.offer;
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

// For a shell that completes: what cannot be found out quickly is not offered.
int print_models(const TargetOptions& options) {
  constexpr Duration kPatience = std::chrono::seconds(1);
  const Result<load::Target> target = find_target(options);
  if (!target.ok()) return bad_input(target.status());
  const auto models = load::fetch_models(target.value(), kPatience);
  if (!models.ok()) return run_failed(models.status());
  for (const serve::ModelInfo& model : models.value()) std::cout << model.name << '\n';
  return kSucceeded;
}

}  // namespace

void add_completion_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "completion", "print a script that completes this program's command line in a shell");
  const auto shell = std::make_shared<std::string>();
  const auto target = std::make_shared<TargetOptions>();
  command
      ->add_option("shell", *shell,
                   "for which one; or models: print the names of a frontend's models, which the "
                   "scripts ask for")
      ->required()
      ->check(one_of({"bash", "zsh", "fish", "models"}));
  add_target_options(*command, *target);
  command->footer(
      "bash: source <(gpulet completion bash). zsh: save it as _gpulet in a folder of fpath. fish: "
      "gpulet completion fish | source. An installation brings them along.");
  command->callback([&app, shell, target, &chosen] {
    chosen = [&app, shell, target] {
      return *shell == "models" ? print_models(*target) : print_completion(app, *shell);
    };
  });
}

}  // namespace gpulet::tools
