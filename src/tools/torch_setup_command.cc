// gpulet torch-setup: starts the script of a bundle that builds the LibTorch executor, in this
// process's place.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/command.h"

namespace gpulet::tools {
namespace {

struct Options {
  std::string python;
  std::string torch;
  std::string compiler;
  int jobs = 0;
  bool check = false;
};

int torch_setup(const Options& options) {
  std::error_code error;
  const std::filesystem::path programs =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path script = programs.parent_path() / "scripts" / "torch-setup";
  if (!std::filesystem::is_regular_file(script, error)) {
    return run_failed({StatusCode::not_found,
                       "there is no " + script.string() +
                           ": this gpulet does not come from a bundle. Programs that were built "
                           "or packaged with LibTorch need no setup (docs/deploy.md)"});
  }
  std::vector<std::string> arguments{script.string(), "--programs", programs.string()};
  const auto add = [&arguments](const char* option, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {option, value});
  };
  add("--python", options.python);
  add("--torch", options.torch);
  add("--compiler", options.compiler);
  add("--jobs", options.jobs > 0 ? std::to_string(options.jobs) : "");
  if (options.check) arguments.emplace_back("--check");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  return run_failed({StatusCode::unavailable, "cannot start " + arguments.front() + ": " +
                                                  std::generic_category().message(errno)});
}

}  // namespace

void add_torch_setup_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "torch-setup", "build the LibTorch executor of a bundle for the PyTorch of this machine");
  const auto options = std::make_shared<Options>();
  auto* const python = command->add_option("--python", options->python,
                                           "a Python that has torch (default: python3)");
  command
      ->add_option("--torch", options->torch,
                   "a LibTorch without Python: the folder that holds include and lib")
      ->excludes(python);
  command->add_option("--compiler", options->compiler,
                      "a C++ compiler that knows C++20 (default: g++)");
  command->add_option("--jobs", options->jobs, "compilers at once (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--check", options->check,
                    "build nothing: run a small model with the executor that is there");
  command->callback([options, &chosen] { chosen = [options] { return torch_setup(*options); }; });
}

}  // namespace gpulet::tools
