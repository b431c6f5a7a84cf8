// Which frontend a command speaks to, and what it shows it: the options that all of them share.
// One thread.
#pragma once

#include <string>

#include "gpulet/core/status.h"
#include "gpulet/load/target.h"
#include "tools/command.h"

namespace gpulet::tools {

struct TargetOptions {
  std::string address = "127.0.0.1:7000";
  std::string authority;   // --tls-authority or $GPULET_TLS_AUTHORITY
  std::string token_file;  // --token-file; without it $GPULET_TOKEN is the token
};

enum class TargetNeed { optional, required };

// The options must live until the chosen run is over.
void add_target_options(CLI::App& command, TargetOptions& options,
                        TargetNeed need = TargetNeed::optional);

// Reads what the options name. Fails with invalid or not_found, naming the option.
[[nodiscard]] Result<load::Target> find_target(const TargetOptions& options);

}  // namespace gpulet::tools
