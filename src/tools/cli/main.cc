// gpulet: the command line (tools/cli/command.h).
#include <exception>
#include <iostream>

#include "gpulet/version/version.h"
#include "tools/cli/command.h"

using namespace gpulet::tools;

int main(int argc, char** argv) {
  try {
    CLI::App app{
        "gpulet serves many models on shares of few devices, each within its latency objective.",
        "gpulet"};
    app.set_version_flag("--version", [] { return gpulet::version::text("gpulet"); });
    app.require_subcommand(1);
    app.footer(
        "`gpulet COMMAND --help` describes a command and its options. Commands that connect to a "
        "frontend take --target, --tls-authority and the token from GPULET_TARGET, "
        "GPULET_TLS_AUTHORITY and GPULET_TOKEN, too.");

    Action chosen;
    add_all_commands(app, chosen);

    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& help) {  // --help or --version
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      std::cerr << explain_parse_error(app, error);
      return kBadInput;
    }
    return chosen();
  } catch (const std::exception& error) {
    std::cerr << "gpulet: unexpected failure: " << error.what() << '\n';
    return kRunFailed;
  }
}
