#include "tools/cli/command.h"

namespace gpulet::tools {

void add_all_commands(CLI::App& app, Action& chosen) {
  for (const auto add : {add_completion_command,  add_config_command,   add_devices_command,
                         add_export_command,      add_infer_command,    add_load_command,
                         add_logs_command,        add_models_command,   add_optimize_command,
                         add_profile_command,     add_schedule_command, add_serve_command,
                         add_simulate_command,    add_status_command,   add_top_command,
                         add_torch_setup_command, add_trace_command,    add_train_command,
                         add_transition_command,  add_wait_command})
    add(app, chosen);
}

}  // namespace gpulet::tools
