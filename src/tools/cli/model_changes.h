// Changes of a running frontend's models: what `gpulet models load`, `unload` and `add` share.
// Blocking; one thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/load/call.h"
#include "gpulet/protocol/messages.h"
#include "tools/cli/command.h"
#include "tools/cli/target_options.h"

namespace gpulet::tools {

struct ChangeOptions {
  TargetOptions target;
  double timeout_s = 120;
  bool json = false;
};

// --target and its like, --timeout and --json.
void add_change_options(CLI::App& command, ChangeOptions& options);

using ChangeDeadline = std::chrono::steady_clock::time_point;
[[nodiscard]] ChangeDeadline deadline_of(const ChangeOptions& options);

// The affected models.
[[nodiscard]] Result<std::vector<ModelInfo>> request_change(const load::Target& target,
                                                            const ModelsChange& change,
                                                            ChangeDeadline deadline);

// Prints the failure of a request, and returns the exit code.
[[nodiscard]] int change_failed(const Status& status);

// Waits until each of the models serves or has failed, but not after the deadline; prints how each
// ended, and returns the exit code. Adds the names of those that do not serve to `failed`.
[[nodiscard]] int await_and_report(const ChangeOptions& options, const load::Target& target,
                                   const std::vector<ModelInfo>& requested, ChangeDeadline deadline,
                                   std::vector<std::string>* failed = nullptr);

// A change that loads all entries of a models file's text. `file` names the text in errors.
[[nodiscard]] ModelsChange load_of(const std::string& text, const std::string& file);

}  // namespace gpulet::tools
