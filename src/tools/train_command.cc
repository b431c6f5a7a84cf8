// gpulet train: starts gpulet-train, which alone needs LibTorch, in this process's place.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/command.h"
#include "tools/profile_support.h"
#include "tools/train_options.h"

namespace gpulet::tools {
namespace {

int train(const TrainFlags& flags, const std::string& named) {
  const auto program = find_program("gpulet-train", named, "--program");
  if (!program.ok()) return run_failed(program.status());
  // A BLAS reads these when it is loaded; the learner has its own threads (train/learner.h).
  for (const char* variable : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"})
    ::setenv(variable, "1", 1);  // NOLINT(concurrency-mt-unsafe)
  std::vector<std::string> arguments = arguments_of(flags);
  arguments.insert(arguments.begin(), program.value().string());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  return run_failed({StatusCode::unavailable, "cannot start " + arguments.front() + ": " +
                                                  std::generic_category().message(errno)});
}

}  // namespace

void add_train_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("train", "train a policy that places models, for --policy inss");
  const auto flags = std::make_shared<TrainFlags>();
  const auto program = std::make_shared<std::string>();
  add_train_flags(*command, *flags);
  command->add_option("--program", *program,
                      "the program that trains (default: gpulet-train beside this)");
  command->callback(
      [flags, program, &chosen] { chosen = [flags, program] { return train(*flags, *program); }; });
}

}  // namespace gpulet::tools
