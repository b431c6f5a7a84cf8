// gpulet-backend: the daemon of one node.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "gpulet/backend/daemon.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/confine/confine.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/stop_signals.h"
#include "gpulet/observe/sinks/log.h"

namespace {

using namespace gpulet;

struct Arguments {
  std::string config;
  std::string frontend;
  std::string node;
};

int complain(const Status& status, int code) {
  std::cerr << "gpulet-backend: " << status.message() << "\n";
  return code;
}

Result<config::BackendConfig> read_config(const Arguments& arguments) {
  auto config = config::load_backend(arguments.config);
  if (!config.ok()) return config;
  if (!arguments.node.empty()) config.value().node = arguments.node;
  if (!arguments.frontend.empty()) {
    const auto frontend = config::parse_endpoint(arguments.frontend);
    if (!frontend.ok()) return frontend.status().within("--frontend");
    config.value().frontend = frontend.value();
  }
  return config;
}

// Before there are other threads: it looks by way of a child. Of a model that shares this process's
// user nothing here is to be read.
void confine_and_tell(const config::BackendConfig& config) {
  if (!config.proxy_sandbox) {
    spdlog::warn("proxies are not confined: \"proxy_sandbox\" is \"off\"");
    return;
  }
  const auto in_force = confine::try_in_child();
  const bool whole = in_force.network.ok() && in_force.system_calls.ok();
  spdlog::log(whole ? spdlog::level::info : spdlog::level::warn, "proxies have {}",
              confine::describe(in_force));
  confine::close_to_others();
}

int run(const Arguments& arguments) {
  const auto config = read_config(arguments);
  if (!config.ok()) return complain(config.status(), 2);
  confine_and_tell(config.value());
  auto setup = backend::make_setup(config.value());
  if (!setup.ok()) return complain(setup.status(), 2);
  for (const auto& absent : setup.value().absent) spdlog::warn("not offered: {}", absent);
  for (const auto& device : setup.value().devices) {
    spdlog::info("device {} ({}): {}, {}", device.offer.device.key.device, device.offer.device.type,
                 device.offer.mechanism,
                 device.offer.traits.limits_memory ? "memory limited" : "no limit of memory");
  }

  if (!config.value().tls && !config::is_loopback(config.value().frontend))
    spdlog::warn("without encryption to {}: set \"tls\" (docs/security.md)",
                 config::to_string(config.value().frontend));

  net::silence_protobuf();
  net::asio::io_context io(1);
  net::StopSignals signals(io);
  const auto daemon = backend::BackendDaemon::start(io, std::move(setup).value());
  signals.wait([&](int signal) {
    spdlog::info("signal {}: stopping", signal);
    daemon->stop([&io] { io.stop(); });
  });
  io.run();
  spdlog::info("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "gpulet-backend: the devices of one node; connects to the frontend and serves the gpulets it "
      "asks for");
  Arguments arguments;
  app.add_option("--config", arguments.config, "backend.json")->required();
  app.add_option("--frontend", arguments.frontend,
                 "HOST:PORT of the frontend, in place of the file's");
  app.add_option("--node", arguments.node, "this node's name, in place of the file's");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  observe::start_log("backend");
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    return complain({StatusCode::internal, error.what()}, 1);
  }
}
