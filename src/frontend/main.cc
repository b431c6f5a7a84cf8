// gpulet-frontend: the daemon that clients and backends connect to.
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "frontend/daemon.h"
#include "gpulet/confine/confine.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/sinks/log.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/version/version.h"

namespace {

using namespace gpulet;

struct Arguments {
  std::string config;
  std::string listen;
  std::string backend_listen;
  std::string member;
  std::string address;
  std::string peer_address;
};

int fail(const Status& status, int code) {
  std::cerr << "gpulet-frontend: " << status.message() << "\n";
  return code;
}

Status override_endpoint(const std::string& text, config::Endpoint& endpoint) {
  if (text.empty()) return {};
  const Result<config::Endpoint> parsed = config::parse_endpoint(text);
  if (parsed.ok()) endpoint = parsed.value();
  return parsed.status();
}

// The names of one of several frontends that read the same file.
Status override_cluster(const Arguments& arguments, std::optional<config::ClusterConfig>& cluster) {
  if (arguments.member.empty() && arguments.address.empty() && arguments.peer_address.empty())
    return {};
  if (!cluster) {
    return {StatusCode::invalid,
            "--member, --address and --peer-address need \"cluster\" in the file"};
  }
  if (!arguments.member.empty()) cluster->member = arguments.member;
  for (const auto& [text, address] : {std::pair(arguments.address, &cluster->address),
                                      std::pair(arguments.peer_address, &cluster->peer_address)}) {
    if (text.empty()) continue;
    if (const auto parsed = config::parse_endpoint(text); !parsed.ok()) return parsed.status();
    *address = text;
  }
  return {};
}

std::uint64_t draw_run() {
  std::random_device device;
  return 1 + device() % ((1U << 23U) - 1);
}

void log_endpoints(const config::FrontendConfig& config, const frontend::FrontendDaemon& daemon) {
  const auto address = [](const std::optional<config::Endpoint>& endpoint, std::uint16_t port) {
    return endpoint ? config::to_string({endpoint->host, port}) : std::string("off");
  };
  spdlog::info("listening: clients {}, backends {}, HTTP {}, gRPC {}, metrics {}",
               daemon.client_address(), daemon.backend_address(),
               address(config.http, daemon.http_port()), address(config.grpc, daemon.grpc_port()),
               address(config.metrics, daemon.metrics_port()));
}

// Every connection takes a descriptor, and the soft limit is often 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    spdlog::warn("cannot raise the limit of file descriptors; it stays at {}", limit.rlim_cur);
}

int run_daemon(const Arguments& arguments) {
  net::asio::io_context io(1);
  net::DaemonSignals signals;
  Result<config::FrontendConfig> config = config::load_frontend(arguments.config);
  if (!config.ok()) return fail(config.status(), 2);
  for (const auto& [text, endpoint] :
       {std::pair(arguments.listen, &config.value().listen),
        std::pair(arguments.backend_listen, &config.value().backend_listen)}) {
    if (const Status status = override_endpoint(text, *endpoint); !status.ok())
      return fail(status, 2);
  }
  if (const Status status = override_cluster(arguments, config.value().cluster); !status.ok())
    return fail(status, 2);
  Result<frontend::Setup> setup = frontend::make_setup(config.value(), draw_run());
  if (!setup.ok()) return fail(setup.status(), 2);
  setup.value().memory = std::make_shared<net::MemoryReserve>();

  // Models may run as this process's user, and all requests lie in one file.
  if (config.value().local_socket) confine::close_to_others();
  raise_descriptor_limit();
  protocol::silence_protobuf();
  Result<std::unique_ptr<frontend::FrontendDaemon>> daemon =
      frontend::FrontendDaemon::start(io, std::move(setup).value());
  if (!daemon.ok()) return fail(daemon.status(), 1);
  log_endpoints(config.value(), *daemon.value());
  for (const std::string& exposure : frontend::exposures(config.value()))
    spdlog::warn("{} (docs/security.md)", exposure);

  // run() returns once everything queued has been sent, or its write timeout has expired.
  bool hurries = false;
  signals.wait(io, {.stop =
                        [&](int signal) {
                          spdlog::info("signal {}: stopping", signal);
                          daemon.value()->stop([&] {
                            signals.finish();
                            if (hurries) io.stop();
                          });
                        },
                    .hurry =
                        [&] {
                          spdlog::warn("second signal: stopping without waiting for requests");
                          hurries = true;
                          daemon.value()->hurry();
                        },
                    .reload = [&] { daemon.value()->reload(); }});
  // On a thread of its own, because the name of the main thread is that of the process.
  std::packaged_task<void()> engine([&io] {
    net::name_thread("engine");
    io.run();
  });
  std::future<void> ended = engine.get_future();
  std::thread(std::move(engine)).join();
  ended.get();  // throws what the engine threw
  spdlog::info("stopped");
  return 0;
}

// By default, the C library raises both bounds to the largest block that was ever freed. Then the
// heap of each thread keeps twice that much free memory at its end, which malloc_trim() leaves
// alone.
void bound_free_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 2 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  bound_free_memory();
  CLI::App app(
      "gpulet-frontend: admits, batches and schedules requests. Clients and backends connect to "
      "it.");
  app.set_version_flag("--version", [] { return version::text("gpulet-frontend"); });
  Arguments arguments;
  app.add_option("--config", arguments.config, "configuration file, such as frontend.json")
      ->required();
  app.add_option("--listen", arguments.listen,
                 "HOST:PORT for clients (default: \"listen\" of the file)");
  app.add_option("--backend-listen", arguments.backend_listen,
                 "HOST:PORT for backends (default: \"backend_listen\" of the file)");
  app.add_option(
      "--member", arguments.member,
      "this frontend's name in its cluster (default: \"member\" of the file's \"cluster\")");
  app.add_option("--address", arguments.address,
                 "HOST:PORT at which clients reach it (default: \"address\" there)");
  app.add_option("--peer-address", arguments.peer_address,
                 "HOST:PORT at which other frontends reach it (default: \"peer_address\" there)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const observe::DaemonLog log("frontend");
  try {
    return run_daemon(arguments);
  } catch (const std::exception& error) {
    return fail({StatusCode::internal, error.what()}, 1);
  }
}
