// gpulet serve: a frontend and a backend on this machine for the given model files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/confine/confine.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"
#include "tools/cli/model_options.h"
#include "tools/measure/machine.h"
#include "tools/measure/scratch_folder.h"
#include "tools/report/format.h"
#include "tools/report/status_document.h"
#include "tools/report/terminal.h"
#include "tools/serve/example_request.h"
#include "tools/serve/local_daemons.h"
#include "tools/serve/measured_models.h"
#include "tools/serve/serving_files.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kReadyPoll = std::chrono::milliseconds(50);
constexpr Duration kStatusTimeout = std::chrono::seconds(2);

struct ServeOptions : ModelFileOptions {
  std::string host = "127.0.0.1";
  std::uint16_t clients_port = 7000;
  std::uint16_t backends_port = 7001;
  std::uint16_t http_port = 8000;
  std::uint16_t grpc_port = 8001;
  std::uint16_t metrics_port = 8002;
  double ready_within_s = 120;
  std::string write_to;
  bool shared_memory = false;
};

// The program for all models; empty: they need several. With the one for ONNX, the backend keeps no
// warm processes of the other, which take a second of a core each.
fs::path only_proxy(const ProxyPrograms& proxies, const std::vector<config::ModelConfig>& models) {
  const bool all_onnx =
      std::all_of(models.begin(), models.end(), [](const config::ModelConfig& model) {
        const auto format = config::format_of(model.file);
        return format.ok() && format.value() == config::FileFormat::onnx;
      });
  return all_onnx ? proxies.onnx : fs::path();
}

// A backend of root runs proxies as another user, who has to enter the folder of the programs to
// load the libraries beside them.
bool only_root_enters(const ProxyPrograms& proxies) {
  return ::geteuid() == 0 && !confine::others_may_enter(proxies.proxy.parent_path());
}

// ---- the daemons

Result<ServingPorts> choose_ports(const ServeOptions& options) {
  ServingPorts ports;
  const auto choose = [](const std::string& host, std::uint16_t wanted, config::Endpoint& chosen) {
    const auto port = free_port(host, wanted);
    if (port.ok()) chosen = {host, port.value()};
    return port.status();
  };
  Status status = choose(options.host, options.clients_port, ports.clients);
  if (status.ok()) status = choose("127.0.0.1", options.backends_port, ports.backends);
  if (status.ok()) status = choose(options.host, options.http_port, ports.http);
  if (status.ok()) status = choose(options.host, options.grpc_port, ports.grpc);
  if (status.ok()) status = choose(options.host, options.metrics_port, ports.metrics);
  if (!status.ok()) return status.within("--listen");
  return ports;
}

// Where commands of this machine reach the port.
config::Endpoint local(const config::Endpoint& endpoint) {
  return {endpoint.host == "0.0.0.0" ? "127.0.0.1" : endpoint.host, endpoint.port};
}

class Server {
 public:
  // The frontend first: the backend connects to it.
  [[nodiscard]] Status start(const ServingFiles& files, const fs::path& folder) {
    for (const auto& [name, program, config] :
         {std::tuple("frontend", "gpulet-frontend", files.frontend),
          std::tuple("backend", "gpulet-backend", files.backend)}) {
      const auto found = find_program(program);
      if (!found.ok()) return found.status();
      auto daemon =
          LocalDaemon::start(std::string("the ") + name, found.value(),
                             {"--config", config.string()}, folder / (std::string(name) + ".log"));
      if (!daemon.ok()) return daemon.status();
      daemons_.push_back(std::move(daemon).value());
    }
    return {};
  }

  // Fails with unavailable, with the end of its log, where a daemon has ended.
  [[nodiscard]] Status running() {
    for (LocalDaemon& daemon : daemons_) {
      if (const auto end = daemon.end())
        return {StatusCode::unavailable,
                fmt::format("{} {}:\n{}", daemon.name(), *end, daemon.end_of_log())};
    }
    return {};
  }

  // In the order of starting, so that the frontend answers what is under way.
  [[nodiscard]] Status stop() {
    Status first;
    for (LocalDaemon& daemon : daemons_) {
      if (Status stopped = daemon.stop(); first.ok()) first = std::move(stopped);
    }
    return first;
  }

 private:
  std::vector<LocalDaemon> daemons_;
};

// Waits until all models serve, and prints what it waits for.
Status wait_until_ready(const ServeOptions& options, Server& server, const load::Target& target,
                        SignalWatch& interrupt) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        from_seconds(options.ready_within_s));
  std::string missing = "the frontend";
  while (true) {
    if (Status running = server.running(); !running.ok()) return running;
    if (const auto document = load::fetch_status(target, kStatusTimeout); document.ok()) {
      const auto still = missing_for(document.value(), {.models = {}, .all = true});
      if (!still.ok()) return still.status();
      if (still.value().empty()) return {};
      if (still.value() != missing) std::cerr << "waiting for " << still.value() << '\n';
      missing = still.value();
    }
    if (interrupt.take()) return {StatusCode::cancelled, "interrupted"};
    if (Clock::now() >= until) {
      return {StatusCode::timeout, fmt::format("not ready after {} s: it waits for {}",
                                               shortest(options.ready_within_s, 1), missing)};
    }
    std::this_thread::sleep_for(kReadyPoll);
  }
}

void print_usage(const std::vector<config::ModelConfig>& models, const ServingPorts& ports,
                 const MachineDevices& machine) {
  std::cout << fmt::format("\nserving on {}\n", devices_text(machine));
  for (const config::ModelConfig& model : models)
    std::cout << fmt::format("  {}, within {} ms\n", model.name, shortest(model.slo_ms, 1));
  // A request of the shortest bucket where the model has buckets.
  config::ModelConfig first = config::buckets_of(models.front()).front();
  first.name = models.front().name;
  std::cout << fmt::format(
                   "\nA request with curl:\n\n{}\n\nThe same in Python:\n\n{}\n"
                   "dashboard: http://{}/    gRPC: {}    gpulet --target: {}\n"
                   "Ctrl-C stops everything.\n",
                   curl_line(first, ports.http), python_snippet(first, ports.http),
                   config::to_string(local(ports.metrics)), config::to_string(local(ports.grpc)),
                   config::to_string(local(ports.clients)))
            << std::flush;
}

int serve_until_signal(Server& server, SignalWatch& interrupt) {
  while (!interrupt.take()) {
    if (Status running = server.running(); !running.ok()) return run_failed(running);
    std::this_thread::sleep_for(kReadyPoll);
  }
  std::cout << "\nstopping\n" << std::flush;
  const Status stopped = server.stop();
  return stopped.ok() ? kSucceeded : run_failed(stopped);
}

// Writes the files that the daemons would be started with, and says how.
int write_files(const ServeOptions& options, const std::vector<config::ModelConfig>& models,
                const profile::Profile& measured, const MachineDevices& machine) {
  std::error_code error;
  const fs::path folder = fs::absolute(options.write_to, error).lexically_normal();
  fs::create_directories(folder, error);
  if (error) {
    return bad_input({StatusCode::invalid, fmt::format("--write: cannot create {}: {}",
                                                       folder.string(), error.message())});
  }
  const ServingPorts ports{{options.host, options.clients_port},
                           {"127.0.0.1", options.backends_port},
                           {options.host, options.http_port},
                           {options.host, options.grpc_port},
                           {options.host, options.metrics_port}};
  const auto files = write_serving_files(folder, models, measured, machine, ports,
                                         {.shared_memory = options.shared_memory});
  if (!files.ok()) return run_failed(files.status());
  std::cout << fmt::format(
      "wrote {0}\nstart:  gpulet-frontend --config {1}\n        gpulet-backend --config {2}\n",
      (folder / "models.json").string(), files.value().frontend.string(),
      files.value().backend.string());
  return kSucceeded;
}

int serve(const ServeOptions& options) {
  auto models = find_models(options);
  if (!models.ok()) return bad_input(models.status());
  const MachineDevices machine = find_machine_devices();
  const auto request = measurement_for(options, models.value(), device_to_measure(machine));
  if (!request.ok()) return run_failed(request.status());
  const auto measured = measure_quickly(request.value(), std::cerr);
  if (measured.status().code() == StatusCode::invalid) return bad_input(measured.status());
  if (!measured.ok()) return run_failed(measured.status());
  propose_objectives(measured.value(), models.value(), std::cout);

  if (!options.write_to.empty())
    return write_files(options, models.value(), measured.value(), machine);

  const auto folder = ScratchFolder::make("gpulet-serve-");
  if (!folder.ok()) return run_failed(folder.status());
  const auto ports = choose_ports(options);
  if (!ports.ok()) return bad_input(ports.status());
  const ProxyPrograms& programs = request.value().proxies;
  const ServingSettings settings{only_proxy(programs, models.value()), only_root_enters(programs),
                                 options.shared_memory};
  if (settings.proxies_as_root) {
    std::cerr << fmt::format(
        "models run as root, because no other user may enter {}; move the programs to a folder "
        "such as /opt to run models as another user\n",
        programs.proxy.parent_path().string());
  }
  const auto files = write_serving_files(folder.value().path(), models.value(), measured.value(),
                                         machine, ports.value(), settings);
  if (!files.ok()) return run_failed(files.status());

  SignalWatch interrupt{SIGINT, SIGTERM};
  Server server;
  if (Status started = server.start(files.value(), folder.value().path()); !started.ok())
    return run_failed(started);
  const load::Target target(local(ports.value().clients));
  if (Status ready = wait_until_ready(options, server, target, interrupt); !ready.ok())
    return run_failed(ready);
  print_usage(models.value(), ports.value(), machine);
  return serve_until_signal(server, interrupt);
}

}  // namespace

void add_serve_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "serve", "serve model files on the devices of this machine", serve);
  add_model_file_options(*command, *options);
  add_checked(*command, "--listen", options->host,
              "IPv4 address for clients; 0.0.0.0: all addresses of this machine", CLI::ValidIPV4);
  const auto port = [command = command](const char* name, std::uint16_t& value, const char* what) {
    add_checked(*command, name, value, fmt::format("port for {}; another one if it is taken", what),
                CLI::Range(1, 65535));
  };
  port("--http-port", options->http_port, "HTTP");
  port("--grpc-port", options->grpc_port, "gRPC");
  port("--metrics-port", options->metrics_port, "metrics and the dashboard");
  port("--port", options->clients_port, "gpulet's own protocol");
  add_checked(*command, "--timeout", options->ready_within_s,
              "seconds until all models have to serve", number_within(1, 86400));
  command->add_flag("--shared-memory", options->shared_memory,
                    "clients of this machine may send tensors in shared memory");
  command->add_option(
      "--write", options->write_to,
      "write the files of the daemons and the measurements into this folder, and do "
      "not serve");
  command->footer(
      "Measures each model on this machine once, starts a frontend and a backend, and serves until "
      "Ctrl-C. Example: gpulet serve resnet18.onnx --slo 50ms");
}

}  // namespace gpulet::tools
