// The commands that start another program in place of this one: train, torch-setup and export.
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
  // A BLAS reads these when it is loaded. The learner has own threads (research/train/learner.h).
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

// ---- export: the Python file that writes model files

struct ExportOptions {
  std::string python = "python3";
  std::string module;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> ranges;
  std::string format;
  std::string device;
  std::string out;
  std::string name;
  std::string slo;
  std::string tolerance;
  std::string max_batch;
};

// In a build, a bundle and an installation.
std::filesystem::path export_script() {
  std::error_code error;
  const auto programs = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return programs.parent_path() / "share" / "gpulet" / "export_module.py";
}

int export_module(const ExportOptions& options) {
  std::error_code error;
  const std::filesystem::path script = export_script();
  if (!std::filesystem::is_regular_file(script, error)) {
    return run_failed({StatusCode::not_found, "no file " + script.string() +
                                                  "; install gpulet as a whole, with its share"});
  }
  std::vector<std::string> arguments{"/usr/bin/env", options.python, script.string(), "--module",
                                     options.module, "--out",        options.out};
  const auto add = [&arguments](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      if (!value.empty()) arguments.push_back(std::string(option) + '=' + value);
    }
  };
  add("--input", options.inputs);
  add("--output", options.outputs);
  add("--range", options.ranges);
  add("--format", {options.format});
  add("--device", {options.device});
  add("--name", {options.name});
  add("--slo-ms", {options.slo});
  add("--tolerance", {options.tolerance});
  add("--max-batch", {options.max_batch});
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

void add_export_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "export", "write a model file from a PyTorch module, and check it",
                  export_module);
  command
      ->add_option("--module", options->module,
                   "a Python file and its function that returns the module, such as net.py:make")
      ->required();
  command->add_option("--out", options->out, "the model file; its entry is written beside it")
      ->required();
  command->add_option("--input", options->inputs,
                      "an input, such as image:FP32:3,224,224 (default: the examples that the "
                      "function returns with the module)");
  command->add_option("--output", options->outputs, "name of an output, in their order");
  command->add_option("--range", options->ranges,
                      "least and greatest value of an input, such as tokens:0,29999");
  command
      ->add_option("--format", options->format,
                   "pt2: compiled by AOTInductor (default); torchscript: traced")
      ->check(CLI::IsMember({"pt2", "torchscript"}));
  command->add_option(
      "--device", options->device,
      "where a .pt2 package will run: cpu or cuda (default: cuda if PyTorch has it)");
  command->add_option("--max-batch", options->max_batch, "largest batch (default: 32)");
  command->add_option("--name", options->name, "name of the model (default: of the file)");
  command->add_option("--slo-ms", options->slo, "objective in the entry (default: 100)");
  command->add_option(
      "--tolerance", options->tolerance,
      "difference between file and module that is allowed, of the largest magnitude "
      "of an output (default: 0.01)");
  command->add_option("--python", options->python, "a Python with torch")->capture_default_str();
  command->footer(
      "Runs the code of the module's file. Example: gpulet export --module net.py:make --input "
      "image:FP32:3,224,224 --output logits --out net.pt2");
}

}  // namespace gpulet::tools
