// The options of commands that connect to a frontend: its address and credentials. One thread.
#pragma once

#include <string>

#include "gpulet/base/status.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"

namespace gpulet::tools {

struct TargetOptions {
  std::string address = "127.0.0.1:7000";
  std::string authority;   // --tls-authority or $GPULET_TLS_AUTHORITY
  std::string token_file;  // --token-file; without it $GPULET_TOKEN is the token
};

enum class TargetNeed { optional, required };

// `options` must outlive the chosen action.
void add_target_options(CLI::App& command, TargetOptions& options,
                        TargetNeed need = TargetNeed::optional);

// Reads the files that the options name. Fails with invalid or not_found; the message names the
// option.
[[nodiscard]] Result<load::Target> find_target(const TargetOptions& options);

}  // namespace gpulet::tools
