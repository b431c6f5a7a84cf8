// gpulet serve: a frontend and a backend on this machine for the given model files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/confine/confine.h"
#include "gpulet/core/bucket.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"
#include "tools/cli/model_options.h"
#include "tools/cli/served_models.h"
#include "tools/measure/machine.h"
#include "tools/report/format.h"
#include "tools/report/status_document.h"
#include "tools/report/terminal.h"
#include "tools/serve/example_request.h"
#include "tools/serve/local_daemons.h"
#include "tools/serve/serving_devices.h"
#include "tools/serve/serving_files.h"
#include "tools/serve/serving_folder.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kReadyPoll = std::chrono::milliseconds(50);
constexpr Duration kStatusTimeout = std::chrono::seconds(2);

// A port and its option. A port that the user gives must be free; the usual one has a substitute.
struct WantedPort {
  const char* option;
  std::uint16_t usual;
  const char* what;
  std::optional<std::uint16_t> given{};

  [[nodiscard]] std::uint16_t wanted() const { return given.value_or(usual); }
};

struct ServeOptions : ModelFileOptions {
  std::string host = "127.0.0.1";
  std::string device;
  WantedPort http{"--http-port", 8000, "HTTP"};
  WantedPort grpc{"--grpc-port", 8001, "gRPC"};
  WantedPort metrics{"--metrics-port", 8002, "metrics and the dashboard"};
  WantedPort clients{"--port", 7000, "gpulet's own protocol"};
  double ready_within_s = 120;
  std::string write_to;
  bool shared_memory = false;
};

// The proxy program for ONNX if all models are ONNX files; otherwise empty: the backend chooses one
// for each model. With a single program, the backend starts no warm processes of the other, each of
// which takes a second of a core.
fs::path only_proxy(const ProxyPrograms& proxies, const std::vector<config::ModelConfig>& models) {
  const bool all_onnx =
      std::all_of(models.begin(), models.end(), [](const config::ModelConfig& model) {
        const auto format = config::format_of(model.file);
        return format.ok() && format.value() == config::FileFormat::onnx;
      });
  return all_onnx ? proxies.onnx : fs::path();
}

// A backend that root runs starts proxies as another user. That user must be able to enter the
// folder of the programs, because they load the libraries beside them.
bool only_root_enters(const ProxyPrograms& proxies) {
  return ::geteuid() == 0 && !confine::others_may_enter(proxies.proxy.parent_path());
}

// ---- the daemons

constexpr const char* kThisMachine = "127.0.0.1";
constexpr std::uint16_t kBackendsPort = 7001;

// Chooses ports, all of them different.
class PortChoice {
 public:
  explicit PortChoice(std::string host) : host_(std::move(host)) {}

  // Reserves the port if the user gave it. Fails with unavailable where another program listens on
  // it, and with invalid where it is one of the ports chosen so far.
  [[nodiscard]] Status take(const WantedPort& port) {
    if (!port.given) return {};
    const std::string place = fmt::format("{} {}", port.option, *port.given);
    if (!chosen_.insert(*port.given).second)
      return Status(StatusCode::invalid, "two ports are the same; choose another one")
          .within(place);
    Status free = check_free(host_, *port.given);
    if (free.ok()) return {};
    return Status(free.code(), free.message() + "; choose another port, or end what listens there")
        .within(place);
  }

  // The given port, or else the usual one or, where that is not free, another one. Says which.
  // REQUIRES: take(port).
  [[nodiscard]] Result<config::Endpoint> endpoint(const WantedPort& port) {
    if (port.given) return config::Endpoint{host_, *port.given};
    auto chosen = usual_or_free(host_, port.usual);
    if (!chosen.ok()) return chosen.status().within("--listen");
    if (chosen.value().port != port.usual) {
      std::cerr << fmt::format("port {} is taken; port {} has {}\n", port.usual,
                               chosen.value().port, port.what);
    }
    return chosen;
  }

  // The usual port, or another one where that is not free.
  [[nodiscard]] Result<config::Endpoint> usual_or_free(const std::string& host,
                                                       std::uint16_t usual) {
    std::uint16_t wanted = chosen_.contains(usual) ? 0 : usual;
    while (true) {
      GPULET_TRY(const auto port, free_port(host, wanted));
      if (chosen_.insert(port).second) return config::Endpoint{host, port};
      wanted = 0;
    }
  }

 private:
  std::string host_;
  std::set<std::uint16_t> chosen_;
};

// Given ports come first, so that none of them is chosen in place of a usual one.
Result<ServingPorts> choose_ports(const ServeOptions& options) {
  PortChoice choice(options.host);
  for (const WantedPort* const port :
       {&options.http, &options.grpc, &options.metrics, &options.clients}) {
    if (Status taken = choice.take(*port); !taken.ok()) return taken;
  }
  ServingPorts ports;
  for (const auto& [port, endpoint] :
       {std::pair(&options.clients, &ports.clients), std::pair(&options.http, &ports.http),
        std::pair(&options.grpc, &ports.grpc), std::pair(&options.metrics, &ports.metrics)}) {
    GPULET_TRY(auto chosen, choice.endpoint(*port));
    *endpoint = std::move(chosen);
  }
  GPULET_TRY(auto backends, choice.usual_or_free(kThisMachine, kBackendsPort));
  ports.backends = std::move(backends);
  return ports;
}

// The address at which programs of this machine reach the port.
config::Endpoint local(const config::Endpoint& endpoint) {
  return {endpoint.host == "0.0.0.0" ? kThisMachine : endpoint.host, endpoint.port};
}

// The two daemons.
class Server {
 public:
  // Starts the frontend first, because the backend connects to it.
  [[nodiscard]] Status start(const ServingFiles& files, const fs::path& folder) {
    for (const auto& [name, program, config] :
         {std::tuple("frontend", "gpulet-frontend", files.frontend),
          std::tuple("backend", "gpulet-backend", files.backend)}) {
      GPULET_TRY(const auto found, find_program(program));
      GPULET_TRY(auto daemon, LocalDaemon::start(std::string("the ") + name, found,
                                                 {"--config", config.string()},
                                                 folder / (std::string(name) + ".log")));
      daemons_.push_back(std::move(daemon));
    }
    return {};
  }

  // Fails with unavailable, and the end of the daemon's log, where one has ended.
  [[nodiscard]] Status running() {
    for (LocalDaemon& daemon : daemons_) {
      if (const auto end = daemon.end())
        return {StatusCode::unavailable,
                fmt::format("{} {}:\n{}", daemon.name(), *end, daemon.end_of_log())};
    }
    return {};
  }

  // Stops the frontend first, so that it answers the requests in flight.
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

// ---- waiting

// Finds out which models will not serve, from a series of status documents.
class UnservedModels {
 public:
  explicit UnservedModels(const ServedModels& models) : models_(models) {}

  // Takes the next status document, and prints which models it now leaves out. Fails with
  // unavailable and the reason where a model that may not be left out will not serve.
  [[nodiscard]] Status look(std::string_view document, Clock::time_point now) {
    GPULET_TRY(const auto found, unavailable_models(document));
    std::map<std::string, Clock::time_point, std::less<>> since;
    for (const UnavailableModel& one : found) {
      const auto known = since_.find(one.name);
      since.emplace(one.name, known == since_.end() ? now : known->second);
    }
    since_ = std::move(since);
    for (const UnavailableModel& one : found) {
      const std::string name(client_name(one.name));
      if (now - since_.find(one.name)->second < kSettled || left_out_.contains(name)) continue;
      if (!models_.may_be_left_out(name))
        return {StatusCode::unavailable, fmt::format("{} cannot be served: {}", name, one.reason)};
      left_out_.insert(name);
      std::cerr << fmt::format("left out: {}: {}\n", name, one.reason);
    }
    return {};
  }

  // The models that will serve.
  [[nodiscard]] std::vector<std::string> served() const {
    std::vector<std::string> names;
    for (const config::ModelConfig& model : models_.models()) {
      if (!left_out_.contains(model.name)) names.push_back(model.name);
    }
    return names;
  }

 private:
  // A model that has been unavailable for this long will not serve.
  static constexpr auto kSettled = std::chrono::seconds(2);

  const ServedModels& models_;
  std::map<std::string, Clock::time_point, std::less<>> since_;  // of the unavailable ones
  std::set<std::string> left_out_;
};

// Waits until every model serves but those that are left out, and prints what it waits for.
Status wait_until_ready(const ServeOptions& options, const ServedModels& models, Server& server,
                        const load::Target& target, SignalWatch& interrupt) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        from_seconds(options.ready_within_s));
  std::string missing = "the frontend";
  UnservedModels unserved(models);
  while (true) {
    if (Status running = server.running(); !running.ok()) return running;
    if (const auto document = load::fetch_status(target, kStatusTimeout); document.ok()) {
      if (Status looked = unserved.look(document.value(), Clock::now()); !looked.ok())
        return looked;
      const std::vector<std::string> served = unserved.served();
      if (served.empty()) return {StatusCode::unavailable, "no model can be served"};
      const bool all = served.size() == models.models().size();
      GPULET_TRY(const auto still,
                 missing_for(document.value(),
                             {.models = all ? std::vector<std::string>() : served, .all = all}));
      if (still.empty()) return {};
      if (still != missing) std::cerr << "waiting for " << still << '\n';
      missing = still;
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
  // The examples use the shortest bucket of a model that has buckets.
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

// Serves changed model files, too.
int serve_until_signal(ServedModels& models, const fs::path& folder, Server& server,
                       SignalWatch& interrupt) {
  while (!interrupt.take()) {
    if (Status running = server.running(); !running.ok()) return run_failed(running);
    if (models.refresh()) {
      const Status written =
          rewrite_models(folder, models.models(), models.applications(), models.profile());
      if (!written.ok()) std::cerr << "a change has no effect: " << written.message() << '\n';
    }
    std::this_thread::sleep_for(kReadyPoll);
  }
  std::cout << "\nstopping\n" << std::flush;
  const Status stopped = server.stop();
  return stopped.ok() ? kSucceeded : run_failed(stopped);
}

// Writes the files that the daemons would be started with, and prints how to start them.
int write_files(const ServeOptions& options, const ServedModels& models) {
  std::error_code error;
  const fs::path folder = fs::absolute(options.write_to, error).lexically_normal();
  fs::create_directories(folder, error);
  if (error) {
    return bad_input({StatusCode::invalid, fmt::format("--write: cannot create {}: {}",
                                                       folder.string(), error.message())});
  }
  const ServingPorts ports{{options.host, options.clients.wanted()},
                           {kThisMachine, kBackendsPort},
                           {options.host, options.http.wanted()},
                           {options.host, options.grpc.wanted()},
                           {options.host, options.metrics.wanted()}};
  const auto files =
      write_serving_files(folder, models.models(), models.profile(), models.machine(), ports,
                          {.shared_memory = options.shared_memory,
                           .native_models = options.native_models,
                           .applications = models.applications()});
  if (!files.ok()) return run_failed(files.status());
  std::cout << fmt::format(
      "wrote {0}\nstart:  gpulet-frontend --config {1}\n        gpulet-backend --config {2}\n",
      (folder / "models.json").string(), files.value().frontend.string(),
      files.value().backend.string());
  return kSucceeded;
}

int not_prepared(const Status& status) {
  const bool input = status.code() == StatusCode::invalid || status.code() == StatusCode::not_found;
  return input ? bad_input(status) : run_failed(status);
}

int serve(const ServeOptions& options) {
  // A closed terminal or a broken pipe ends it as Ctrl-C does. Watched before
  // ServingFolder::make(), so that no signal leaves the folder behind.
  SignalWatch interrupt{SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  std::optional<ServingPorts> ports;
  if (options.write_to.empty()) {
    auto chosen = choose_ports(options);
    if (!chosen.ok()) return bad_input(chosen.status());
    ports = std::move(chosen).value();
  }
  auto prepared = ServedModels::prepare(options, options.device);
  if (!prepared.ok()) return not_prepared(prepared.status());
  ServedModels& models = prepared.value();
  if (!ports) return write_files(options, models);

  const auto folder = ServingFolder::make();
  if (!folder.ok()) return run_failed(folder.status());
  const ServingSettings settings{only_proxy(models.proxies(), models.models()),
                                 only_root_enters(models.proxies()), options.shared_memory,
                                 options.native_models, models.applications()};
  if (settings.proxies_as_root) {
    std::cerr << fmt::format(
        "models run as root, because no other user may enter {}; move the programs to a folder "
        "such as /opt to run models as another user\n",
        models.proxies().proxy.parent_path().string());
  }
  const auto files = write_serving_files(folder.value().path(), models.models(), models.profile(),
                                         models.machine(), *ports, settings);
  if (!files.ok()) return run_failed(files.status());

  Server server;
  if (Status started = server.start(files.value(), folder.value().path()); !started.ok())
    return run_failed(started);
  const load::Target target(local(ports->clients));
  if (Status ready = wait_until_ready(options, models, server, target, interrupt); !ready.ok())
    return run_failed(ready);
  print_usage(models.models(), *ports, models.machine());
  return serve_until_signal(models, folder.value().path(), server, interrupt);
}

}  // namespace

void add_serve_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "serve", "serve model files on the devices of this machine", serve);
  add_model_file_options(*command, *options);
  command->add_option("--device", options->device,
                      "where to serve: gpu, cpu, cuda:0, cores such as cpu:0,1, or auto: the GPUs, "
                      "or the cores where no GPU can serve, and a line says why (default: auto)");
  add_checked(*command, "--listen", options->host,
              "IPv4 address for clients; 0.0.0.0: all addresses of this machine", CLI::ValidIPV4);
  for (WantedPort* const port :
       {&options->http, &options->grpc, &options->metrics, &options->clients}) {
    command
        ->add_option(port->option, port->given,
                     fmt::format("port for {} (default: {}, or another one if that is taken)",
                                 port->what, port->usual))
        ->check(CLI::Range(1, 65535));
  }
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
      "Ctrl-C. Files that change meanwhile are noticed. Example: gpulet serve resnet18.onnx --slo "
      "400ms");
}

}  // namespace gpulet::tools
