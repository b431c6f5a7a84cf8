#include "tests/support/cluster/cluster.h"

#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <fstream>
#include <future>
#include <stdexcept>
#include <utility>

#include "gpulet/profile/store.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::filesystem::path make_directory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "gpulet-cluster-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  return pattern;
}

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

frontend::Setup write_and_load(const std::filesystem::path& directory,
                               const std::vector<ClusterModel>& models) {
  std::string entries;
  std::map<std::string, double> base_ms;
  for (const ClusterModel& model : models) {
    write_file(directory / (model.name + ".pt"),
               "no network, but a file with a hash: " + model.name);
    const std::string tensor =
        R"(","type":"UINT8","shape":[)" + std::to_string(model.bytes) + "]}]";
    entries += std::string(entries.empty() ? "" : ",") + R"({"name":")" + model.name +
               R"(","file":")" + model.name + R"(.pt","inputs":[{"name":"x)" + tensor +
               R"(,"outputs":[{"name":"y)" + tensor + R"(,"slo_ms":)" +
               std::to_string(model.slo_ms) + R"(,"rate":)" + std::to_string(model.rate) +
               R"(,"max_batch":16})";
    base_ms[model.name] = model.base_ms;
  }
  write_file(directory / "models.json", R"({"models":[)" + entries + "]}");
  must(profile::write_profile(serve::testing::card_profile(base_ms), directory / "profiles"));

  config::FrontendConfig config;
  config.listen = {"127.0.0.1", 0};
  config.backend_listen = {"127.0.0.1", 0};
  config.models = directory / "models.json";
  config.profiles = directory / "profiles";
  Result<frontend::Setup> setup = frontend::make_setup(config, 7);
  must(setup.status());
  return std::move(setup).value();
}

}  // namespace

Cluster::Cluster(const std::vector<ClusterModel>& models, frontend::CoreObserver observer)
    : directory_(make_directory()), setup_(write_and_load(directory_, models)) {
  spdlog::set_level(spdlog::level::warn);
  auto started = frontend::FrontendDaemon::start(io_, setup_, std::move(observer));
  must(started.status());
  frontend_ = std::move(started).value();
  client_port_ = frontend_->client_port();
  backend_port_ = frontend_->backend_port();
  started_at_ = frontend_->started_at();
  thread_ = std::jthread([this] {
    const auto guard = net::asio::make_work_guard(io_);
    io_.run();
  });
}

Cluster::~Cluster() {
  for (const pid_t process : processes_) {
    ::kill(process, SIGCONT);
    ::kill(process, SIGTERM);
  }
  for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
  on_daemons([this] {
    backends_.clear();
    frontend_.reset();
  });
  io_.stop();
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Cluster::on_daemons(const std::function<void()>& what) {
  std::promise<void> done;
  net::asio::post(io_, [&] {
    what();
    done.set_value();
  });
  done.get_future().get();
}

std::filesystem::path Cluster::write_backend_config(const std::string& node,
                                                    std::uint32_t devices) const {
  const std::filesystem::path file = directory_ / ("backend-" + node + ".json");
  write_file(file, R"({"node":")" + node + R"(","frontend":"127.0.0.1:)" +
                       std::to_string(backend_port_) + R"(","model_store":"store-)" + node +
                       R"(","profiles":"profiles","proxy":")" + GPULET_BINARY_DIR +
                       R"(/bin/gpulet-proxy-simulated","devices":[{"type":"card","count":)" +
                       std::to_string(devices) + R"(,"partitioning":"simulated"}]})");
  return file;
}

void Cluster::add_backend(const std::string& node, std::uint32_t devices) {
  const Result<config::BackendConfig> config =
      config::load_backend(write_backend_config(node, devices));
  must(config.status());
  Result<backend::Setup> setup = backend::make_setup(config.value());
  must(setup.status());
  on_daemons(
      [&] { backends_[node] = backend::BackendDaemon::start(io_, std::move(setup).value()); });
}

pid_t Cluster::spawn_backend(const std::string& node, std::uint32_t devices) {
  const std::string file = write_backend_config(node, devices).string();
  const std::string program = std::string(GPULET_BINARY_DIR) + "/bin/gpulet-backend";
  std::vector<std::string> words{program, "--config", file};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  if (::posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
    throw std::runtime_error("cannot start " + program);
  }
  processes_.push_back(process);
  return process;
}

serve::FrontendStatus Cluster::status() {
  serve::FrontendStatus status;
  on_daemons([&] { status = frontend_->status(); });
  return status;
}

std::vector<pid_t> Cluster::proxies(const std::string& node) {
  std::vector<pid_t> proxies;
  on_daemons([&] { proxies = backends_.at(node)->proxies(); });
  return proxies;
}

void Cluster::wait_until_serving() {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  while (Clock::now() < deadline) {
    const serve::FrontendStatus now = status();
    if (now.state == "serving" && !now.reorganising && now.schedulable) return;
    std::this_thread::yield();
  }
  throw std::runtime_error("the cluster does not serve within 30 s");
}

void Cluster::stop_frontend() {
  std::promise<void> done;
  net::asio::post(io_, [&] { frontend_->stop([&] { done.set_value(); }); });
  done.get_future().get();
}

}  // namespace gpulet::testing
