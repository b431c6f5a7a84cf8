// gpulet-backend: the daemon of one node.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "backend/daemon.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/confine/confine.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/sinks/log.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/version/version.h"

namespace {

using namespace gpulet;

struct Arguments {
  std::string config;
  std::vector<std::string> frontends;
  std::string node;
};

int report(const Status& status, int code) {
  std::cerr << "gpulet-backend: " << status.message() << "\n";
  return code;
}

Result<config::BackendConfig> read_config(const Arguments& arguments) {
  auto config = config::load_backend(arguments.config);
  if (!config.ok()) return config;
  if (!arguments.node.empty()) config.value().node = arguments.node;
  if (!arguments.frontends.empty()) config.value().frontends.clear();
  for (const std::string& text : arguments.frontends) {
    const auto frontend = config::parse_endpoint(text);
    if (!frontend.ok()) return frontend.status().within("--frontend");
    config.value().frontends.push_back(frontend.value());
  }
  return config;
}

// Tries how proxies will be confined, and protects this process's memory from models that run as
// its user. Forks, so it must run before there are other threads. Empty: proxies are not confined.
std::optional<confine::InForce> try_confinement(const config::BackendConfig& config) {
  if (!config.proxy_sandbox) return std::nullopt;
  auto in_force = confine::try_in_child();
  confine::close_to_others();
  return in_force;
}

void log_confinement(const std::optional<confine::InForce>& tried) {
  if (!tried) {
    spdlog::warn("proxies are not confined: \"proxy_sandbox\" is \"off\"");
    return;
  }
  const confine::InForce& in_force = *tried;
  const bool whole = in_force.network.ok() && in_force.system_calls.ok();
  spdlog::log(whole ? spdlog::level::info : spdlog::level::warn, "proxies have {}",
              confine::describe(in_force));
}

// Proxies of another user are executed from an open file, but their libraries are not.
void warn_of_closed_folders(const backend::Setup& setup) {
  if (!setup.proxy_user) return;
  std::set<std::filesystem::path> folders;
  for (const auto& device : setup.devices) folders.insert(device.proxy_program.parent_path());
  for (const std::filesystem::path& folder : folders) {
    if (confine::others_may_enter(folder)) continue;
    spdlog::warn(
        "user {}, as which proxies run, may not enter {}: they find only the libraries of the "
        "system; move the programs to a folder such as /opt, or set \"proxy_user\"",
        setup.proxy_user->name, folder.string());
  }
}

int run(const Arguments& arguments) {
  net::asio::io_context io(1);
  net::DaemonSignals signals;
  const auto config = read_config(arguments);
  if (!config.ok()) return report(config.status(), 2);
  const auto confinement = try_confinement(config.value());
  auto setup = backend::make_setup(config.value());
  if (!setup.ok()) return report(setup.status(), 2);
  // The first line starts the log's thread.
  log_confinement(confinement);
  warn_of_closed_folders(setup.value());
  for (const auto& absent : setup.value().absent) spdlog::warn("not offered: {}", absent);
  for (const auto& device : setup.value().devices) {
    spdlog::info("device {} ({}): {}, {}", device.offer.device.key.device, device.offer.device.type,
                 device.offer.mechanism,
                 device.offer.traits.limits_memory ? "memory limited" : "no memory limit");
  }

  for (const config::Endpoint& frontend : config.value().frontends) {
    if (!config.value().tls && !config::is_loopback(frontend))
      spdlog::warn("connection to {} is not encrypted: set \"tls\" (docs/security.md)",
                   config::to_string(frontend));
  }

  protocol::silence_protobuf();
  const auto daemon = backend::BackendDaemon::start(io, std::move(setup).value());
  signals.wait(io, {.stop =
                        [&](int signal) {
                          spdlog::info("signal {}: stopping", signal);
                          daemon->stop([&io] { io.stop(); });
                        },
                    .hurry =
                        [&] {
                          spdlog::warn("second signal: ending the proxies now");
                          io.stop();
                        },
                    .reload =
                        [&] {
                          spdlog::info(
                              "SIGHUP: reading the certificate again; other changes of the "
                              "configuration need a restart");
                          daemon->reload();
                        }});
  io.run();
  spdlog::info("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "gpulet-backend: offers the devices of one node to the frontend and runs the gpulets that it "
      "requests");
  app.set_version_flag("--version", [] { return version::text("gpulet-backend"); });
  Arguments arguments;
  app.add_option("--config", arguments.config, "path of backend.json")->required();
  app.add_option("--frontend", arguments.frontends,
                 "HOST:PORT of a frontend; overrides the file; repeat it for several frontends");
  app.add_option("--node", arguments.node, "name of this node; overrides the file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const observe::DaemonLog log("backend");
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    return report({StatusCode::internal, error.what()}, 1);
  }
}
