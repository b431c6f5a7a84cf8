// gpulet: the command line. See tools/command.h.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <exception>
#include <iostream>

#include "tools/command.h"
#include "tools/command_line.h"

int main(int argc, char** argv) {
  try {
    CLI::App app{
        "gpulet serves many models on shares of few devices, each within its latency objective.",
        "gpulet"};
    app.set_version_flag("--version", "gpulet " GPULET_VERSION);
    app.require_subcommand(1);
    app.footer("`gpulet COMMAND --help` tells a command's options.");

    gpulet::tools::Run chosen;
    gpulet::tools::add_completion_command(app, chosen);
    gpulet::tools::add_config_command(app, chosen);
    gpulet::tools::add_devices_command(app, chosen);
    gpulet::tools::add_infer_command(app, chosen);
    gpulet::tools::add_load_command(app, chosen);
    gpulet::tools::add_logs_command(app, chosen);
    gpulet::tools::add_models_command(app, chosen);
    gpulet::tools::add_optimize_command(app, chosen);
    gpulet::tools::add_profile_command(app, chosen);
    gpulet::tools::add_schedule_command(app, chosen);
    gpulet::tools::add_simulate_command(app, chosen);
    gpulet::tools::add_status_command(app, chosen);
    gpulet::tools::add_top_command(app, chosen);
    gpulet::tools::add_torch_setup_command(app, chosen);
    gpulet::tools::add_trace_command(app, chosen);
    gpulet::tools::add_train_command(app, chosen);
    gpulet::tools::add_transition_command(app, chosen);
    gpulet::tools::add_wait_command(app, chosen);

    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& help) {  // or the version
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      std::cerr << gpulet::tools::complaint(app, error);
      return gpulet::tools::kBadInput;
    }
    return chosen();
  } catch (const std::exception& error) {
    std::cerr << "gpulet: unexpected failure: " << error.what() << '\n';
    return gpulet::tools::kRunFailed;
  }
}
