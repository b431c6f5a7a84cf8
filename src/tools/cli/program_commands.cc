// The commands that start another program in place of this one: train and torch-setup.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/plan_options.h"

namespace gpulet::tools {
namespace {

struct TrainCommandOptions : TrainOptions {
  std::string program;
};

int train(const TrainCommandOptions& options) {
  const auto program = find_program("gpulet-train", options.program, "--program");
  if (!program.ok()) return run_failed(program.status());
  // A BLAS reads these when it is loaded. The learner has own threads (train/learner.h).
  for (const char* variable : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"})
    ::setenv(variable, "1", 1);  // NOLINT(concurrency-mt-unsafe)
  std::vector<std::string> arguments = train_arguments(options);
  arguments.insert(arguments.begin(), program.value().string());
  return run_program(std::move(arguments));
}

// ---- torch-setup: the script of a bundle that builds the LibTorch executor

struct TorchSetupOptions {
  std::string python;
  std::string torch;
  std::string compiler;
  int jobs = 0;
  bool check = false;
};

int torch_setup(const TorchSetupOptions& options) {
  std::error_code error;
  const std::filesystem::path programs =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path script = programs.parent_path() / "scripts" / "torch-setup";
  if (!std::filesystem::is_regular_file(script, error)) {
    return run_failed({StatusCode::not_found,
                       "no script " + script.string() +
                           ": this gpulet is not part of a bundle. Programs that were built or "
                           "packaged with LibTorch need no setup (docs/deploy.md)"});
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
  return run_program(std::move(arguments));
}

}  // namespace

void add_train_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "train", "train a placement policy for --policy inss", train);
  add_train_options(*command, *options);
  command->add_option("--program", options->program,
                      "path of gpulet-train (default: beside this program)");
}

void add_torch_setup_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "torch-setup",
      "build the LibTorch executor of a bundle for this machine's PyTorch", torch_setup);
  auto* const python =
      command->add_option("--python", options->python, "a Python with torch (default: python3)");
  command
      ->add_option("--torch", options->torch,
                   "folder of a LibTorch without Python, with the folders include and lib")
      ->excludes(python);
  command->add_option("--compiler", options->compiler, "a compiler for C++20 (default: g++)");
  command->add_option("--jobs", options->jobs, "parallel compilations (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--check", options->check,
                    "build nothing; run a small model with the existing executor");
}

}  // namespace gpulet::tools
