// bench_serve_pauses: how long the frontend's event loop is held up by administrative calls, with
// thousands of models and devices. bench/serve/README.md says what it prints.
#include <spdlog/spdlog.h>
#include <stdlib.h>  // mkdtemp

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/serve/pauses_loop.h"
#include "bench/serve/pauses_nodes.h"
#include "bench/serve/support/daemon_process.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"
#include "frontend/daemon.h"
#include "gpulet/load/call.h"
#include "gpulet/profile/store.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Arguments {
  std::uint32_t models = 2000;
  std::uint32_t nodes = 50;
  std::uint32_t devices = 1000;
  double rate = 5;  // of each model
  double aim_ms = 5;
  bool untimed = false;
  bool verbose = false;
  std::string programs;  // the frontend is in this process; clients that come in crowds are not
};

constexpr auto kPatience = std::chrono::minutes(5);

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

std::string name_of(std::uint32_t model) { return "model-" + std::to_string(10'000 + model); }

// A shell command that runs on demand in a process of its own, which starts while this one is
// small: forking a process that holds thousands of models stalls the loop, and so do client threads
// in this process.
class CommandOnDemand {
 public:
  // In `command`, $1 is the address that it is run with.
  CommandOnDemand(const std::filesystem::path& directory, const std::string& name,
                  const std::string& command)
      : address_(directory / (name + ".address")),
        shell_("/bin/sh",
               {"-c", "until [ -e " + address_.string() + " ]; do sleep 0.02; done; set -- $(cat " +
                          address_.string() + "); " + command},
               directory / (name + ".log"), {}) {}

  void run(const std::string& address) {
    const std::string unfinished = address_.string() + ".new";
    std::ofstream(unfinished) << address;
    std::filesystem::rename(unfinished, address_);
    if (!shell_.wait_for_end(kPatience) || shell_.end() != 0)
      throw std::runtime_error("a command failed: " + shell_.log());
  }

 private:
  const std::filesystem::path address_;
  DaemonProcess shell_;
};

std::string fifty_statuses(const std::string& programs) {
  return "for i in $(seq 50); do " + programs +
         "/gpulet status --json --target $1 >/dev/null & jobs=\"$jobs $!\"; done; "
         "for job in $jobs; do wait $job || exit 1; done";
}

std::string post_index() {
  return "/usr/bin/python3 -c 'import sys, urllib.request as http; "
         "http.urlopen(http.Request(sys.argv[1], method=\"POST\")).read()' "
         "http://$1/v2/repository/index";
}

class Scene {
 public:
  explicit Scene(const Arguments& arguments)
      : arguments_(arguments),
        directory_(made_directory()),
        statuses_(directory_, "status", fifty_statuses(arguments.programs)),
        index_(directory_, "index", post_index()) {
    write_models(1);
    must(profile::write_profile(made_profile(), directory_ / "profiles"));
    config::FrontendConfig config;
    config.listen = {"127.0.0.1", 0};
    config.backend_listen = {"127.0.0.1", 0};
    config.http = config::Endpoint{"127.0.0.1", 0};
    config.metrics = config::Endpoint{"127.0.0.1", 0};
    config.grpc.reset();
    config.models = directory_ / "models.json";
    config.profiles = directory_ / "profiles";
    config.trace_every = 1;
    Result<frontend::Setup> setup = frontend::make_setup(config, 7);
    must(setup.status());
    auto daemon = frontend::FrontendDaemon::start(io_, std::move(setup).value());
    must(daemon.status());
    daemon_ = std::move(daemon).value();
    client_ = {"127.0.0.1", daemon_->client_port()};
    http_ = {"127.0.0.1", daemon_->http_port()};
    metrics_ = {"127.0.0.1", daemon_->metrics_port()};
    loop_.emplace(io_);
  }
  ~Scene() {
    nodes_.reset();
    loop_.reset();
    daemon_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  int run() {
    std::printf("%-44s %10s %10s %9s\n", "call", "longest ms", "all ms", "handlers");
    measure("nothing", [] { std::this_thread::sleep_for(seconds(2)); });
    measure("nodes join, the first plan", [this] {
      nodes_.emplace(daemon_->backend_port(), arguments_.nodes,
                     arguments_.devices / arguments_.nodes);
      wait_until("a plan is in force", [](const Json& status) {
        return status["frontend"]["epoch"].get<int>() > 0 && !status["frontend"]["reorganising"];
      });
    });
    measure("requests", [this] { send_requests(20'000); });
    measure("status", [this] { must(load::fetch_status(client_, kPatience).status()); });
    measure("status, 50 times at once", [this] { statuses_.run(config::to_string(client_)); });
    measure("metrics", [this] { page(metrics_, "/metrics"); });
    measure("dashboard's past", [this] { page(metrics_, "/gpulet/history"); });
    measure("statistics of all models", [this] { page(http_, "/v2/models/stats"); });
    measure("statistics of one model",
            [this] { page(http_, "/v2/models/" + name_of(7) + "/stats"); });
    measure("repository index", [this] { index_.run(config::to_string(http_)); });
    measure("models list", [this] { (void)load::fetch_models(client_, kPatience); });
    measure("trace of what was sampled", [this] { page(http_, "/gpulet/trace"); });
    measure("log of what was sampled", [this] { page(http_, "/gpulet/trace?format=log"); });
    measure("unload a model", [this] { change(ModelsChange::Kind::unload); });
    measure("load a model", [this] { change(ModelsChange::Kind::load); });
    measure("all models change", [this] {
      const int before = epoch();
      write_models(2);
      wait_until("the next plan is in force", [before](const Json& status) {
        return status["frontend"]["epoch"].get<int>() > before &&
               !status["frontend"]["reorganising"];
      });
    });
    measure("a tenth of the nodes reconnects", [this] {
      nodes_->reconnect(arguments_.nodes / 10);
      wait_until("all are back", [this](const Json& status) {
        return status["nodes"].size() == arguments_.nodes && !status["frontend"]["reorganising"];
      });
      std::this_thread::sleep_for(seconds(3));
    });
    return verdicts_.exit_code();
  }

 private:
  static std::filesystem::path made_directory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "gpulet-pauses-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    return pattern;
  }

  void write_models(int version) const {
    Json models = Json::array();
    const Json tensor = {{"name", "x"}, {"type", "UINT8"}, {"shape", {1}}};
    for (std::uint32_t i = 0; i < arguments_.models; ++i) {
      const std::filesystem::path file = directory_ / (name_of(i) + ".pt");
      std::ofstream(file.string() + ".new") << "version " << version << " of " << name_of(i);
      std::filesystem::rename(file.string() + ".new", file);
      models.push_back({{"name", name_of(i)},
                        {"file", file.string()},
                        {"inputs", Json::array({tensor})},
                        {"outputs", Json::array({tensor})},
                        {"slo_ms", 200},
                        {"rate", arguments_.rate},
                        {"max_batch", 16}});
    }
    std::ofstream(directory_ / "models.json") << Json{{"models", models}}.dump();
  }

  profile::Profile made_profile() const {
    std::vector<profile::LatencySample> samples;
    for (const int percent : {20, 40, 50, 60, 80, 100}) {
      for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U})
        samples.push_back({batch, Share{percent}, (2 + 2.0 * batch) * 100 / percent});
    }
    profile::Profile profile;
    profile.name = "card";
    for (std::uint32_t i = 0; i < arguments_.models; ++i) {
      profile.models.emplace(
          name_of(i),
          profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, std::nullopt});
    }
    return profile;
  }

  void measure(const std::string& what, const std::function<void()>& call) {
    (void)loop_->take();
    call();
    std::this_thread::sleep_for(milliseconds(500));  // what follows belongs to it
    const MeasuredLoop::Pause pause = loop_->take();
    std::printf("%-44s %10.2f %10.1f %9llu\n", what.c_str(), to_ms(pause.longest),
                to_ms(pause.together), static_cast<unsigned long long>(pause.handlers));
    std::fflush(stdout);
    verdicts_.hold(
        arguments_.untimed || to_ms(pause.longest) <= arguments_.aim_ms,
        text("%s: %.2f ms, at most %.1f", what.c_str(), to_ms(pause.longest), arguments_.aim_ms));
  }

  Json status() const {
    const auto told = load::fetch_status(client_, kPatience);
    must(told.status());
    return Json::parse(told.value());
  }
  int epoch() const { return status()["frontend"]["epoch"].get<int>(); }

  void wait_until(const char* what, const std::function<bool(const Json&)>& condition) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition(status())) {
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error(std::string("in vain: ") + what);
      std::this_thread::sleep_for(milliseconds(300));
    }
  }

  static void page(const config::Endpoint& where, const std::string& path) {
    must(load::fetch_page(where, path, kPatience, [] { return true; }).status());
  }

  static void at_once(int count, const std::function<void()>& call) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(call);
  }

  void send_requests(std::uint64_t count) const {
    at_once(4, [this, count] {
      for (std::uint64_t i = 0; i < count / 4 / 100; ++i) {
        InferRequest request;
        request.model = name_of(static_cast<std::uint32_t>(i % arguments_.models));
        request.inputs = {{"x", DataType::uint8, {1}}};
        request.payload = Bytes::own({std::byte{1}});
        (void)load::call(client_, request, kPatience);
      }
    });
  }

  void change(ModelsChange::Kind kind) const {
    must(load::change_models(client_, {kind, name_of(3), {}, {}}, kPatience).status());
  }

  const Arguments arguments_;
  const std::filesystem::path directory_;
  CommandOnDemand statuses_;
  CommandOnDemand index_;
  net::asio::io_context io_{1};
  std::unique_ptr<frontend::FrontendDaemon> daemon_;
  config::Endpoint client_;
  config::Endpoint http_;
  config::Endpoint metrics_;
  std::optional<MeasuredLoop> loop_;
  std::optional<MadeUpNodes> nodes_;
  Verdicts verdicts_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Options options("How long administrative calls hold up the frontend's event loop");
  Arguments arguments;
  options.add("--models", arguments.models, "models");
  options.add("--nodes", arguments.nodes, "nodes");
  options.add("--devices", arguments.devices, "devices of all nodes");
  options.add("--rate", arguments.rate, "requests per second that each model is planned for");
  options.add("--aim-ms", arguments.aim_ms, "the longest pause that is met");
  options.add_flag("--untimed", arguments.untimed, "measures, but holds nothing against the aim");
  options.add_flag("--verbose", arguments.verbose, "with the frontend's log");
  return run_program("pauses", options, arguments.programs, argc, argv, [&] {
    spdlog::set_level(arguments.verbose ? spdlog::level::info : spdlog::level::err);
    return Scene(arguments).run();
  });
}
