// The options of commands that connect to a frontend: its address and credentials. One thread.
#pragma once

#include <string>

#include "gpulet/base/status.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"

namespace gpulet::tools {

struct TargetOptions {
  std::string address = "127.0.0.1:7000";  // --target or $GPULET_TARGET
  std::string authority;                   // --tls-authority or $GPULET_TLS_AUTHORITY
  std::string token_file;                  // --token-file; without it $GPULET_TOKEN is the token
};

// `options` must outlive the chosen action.
void add_target_options(CLI::App& command, TargetOptions& options);

// Reads the files that the options name. Fails with invalid or not_found, naming the option.
[[nodiscard]] Result<load::Target> find_target(const TargetOptions& options);

// As add_command() in command.h; `run` also gets the target that options->target names.
template <typename Options>
std::pair<CLI::App*, Options*> add_command(CLI::App& parent, Action& chosen,
                                           const std::string& name, const std::string& description,
                                           int (*run)(const Options&, const load::Target&)) {
  CLI::App* const command = parent.add_subcommand(name, description);
  const auto options = std::make_shared<Options>();
  command->callback([options, run, &chosen] {
    chosen = [options, run] {
      const Result<load::Target> target = find_target(options->target);
      return target.ok() ? run(*options, target.value()) : bad_input(target.status());
    };
  });
  return {command, options.get()};
}

}  // namespace gpulet::tools
