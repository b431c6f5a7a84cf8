// The commands of the `gpulet` program.
//
// add_X_command declares the command's options below `app`; when the user chose that command,
// CLI11's callback sets `chosen`, which main runs once parsing is over. What it returns is the
// program's exit code:
//   0  success
//   1  a run that failed (nobody answered at the target, a file could not be written, ...)
//   2  bad arguments or input, with a message that names the file, the place and the mend
// With --json a command prints one JSON document on standard output and nothing else there;
// messages go to standard error. One thread.
#pragma once

#include <functional>
#include <string>

#include "gpulet/core/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}

namespace gpulet::tools {

using Run = std::function<int()>;

inline constexpr int kSucceeded = 0;
inline constexpr int kRunFailed = 1;
inline constexpr int kBadInput = 2;

// Print "gpulet: <message>" on standard error and return the exit code of that kind of failure.
[[nodiscard]] int run_failed(const Status& status);
[[nodiscard]] int bad_input(const Status& status);

// `app` must live until the chosen run is over, and be complete by then.
void add_completion_command(CLI::App& app, Run& chosen);
void add_config_command(CLI::App& app, Run& chosen);
void add_devices_command(CLI::App& app, Run& chosen);
void add_infer_command(CLI::App& app, Run& chosen);
void add_load_command(CLI::App& app, Run& chosen);
void add_logs_command(CLI::App& app, Run& chosen);
void add_models_command(CLI::App& app, Run& chosen);
void add_optimize_command(CLI::App& app, Run& chosen);
void add_profile_command(CLI::App& app, Run& chosen);
void add_schedule_command(CLI::App& app, Run& chosen);
void add_simulate_command(CLI::App& app, Run& chosen);
void add_status_command(CLI::App& app, Run& chosen);
void add_top_command(CLI::App& app, Run& chosen);
void add_torch_setup_command(CLI::App& app, Run& chosen);
void add_trace_command(CLI::App& app, Run& chosen);
void add_train_command(CLI::App& app, Run& chosen);
void add_transition_command(CLI::App& app, Run& chosen);
void add_wait_command(CLI::App& app, Run& chosen);

}  // namespace gpulet::tools
