#include "tests/support/cluster/cluster.h"

#include <sched.h>
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
#include <string_view>
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

std::string json_of(const std::vector<TensorSpec>& tensors) {
  std::string text;
  for (const TensorSpec& tensor : tensors) {
    std::string shape;
    for (const std::int64_t dimension : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    text += std::string(text.empty() ? "" : ",") + R"({"name":")" + tensor.name + R"(","type":")" +
            std::string(to_string(tensor.type)) + R"(","shape":[)" + shape + "]}";
  }
  return "[" + text + "]";
}

std::string models_text(const std::vector<config::ModelConfig>& models,
                        const std::string& applications) {
  std::string entries;
  for (const config::ModelConfig& model : models) {
    entries += std::string(entries.empty() ? "" : ",") + R"({"name":")" + model.name +
               R"(","file":")" + model.file.string() + R"(","inputs":)" + json_of(model.inputs) +
               R"(,"outputs":)" + json_of(model.outputs) + R"(,"slo_ms":)" +
               std::to_string(model.slo_ms) + R"(,"rate":)" + std::to_string(model.rate) +
               R"(,"max_batch":)" + std::to_string(model.max_batch) + "}";
  }
  return R"({"models":[)" + entries + R"(],"applications":)" + applications + "}";
}

frontend::Setup write_and_load(const std::filesystem::path& directory, const std::string& models,
                               const std::vector<profile::Profile>& profiles,
                               const ClusterChanges& changes) {
  write_file(directory / "models.json", models);
  for (const profile::Profile& profile : profiles)
    must(profile::write_profile(profile, directory / "profiles"));
  config::FrontendConfig config;
  config.listen = {"127.0.0.1", 0};
  config.backend_listen = {"127.0.0.1", 0};
  config.http = config::Endpoint{"127.0.0.1", 0};
  // gRPC's library is not built under ThreadSanitizer, which then sees half of what happens.
  config.grpc = std::nullopt;
  if (std::string_view(GPULET_SANITIZERS) != "thread")
    config.grpc = config::Endpoint{"127.0.0.1", 0};
  config.metrics = config::Endpoint{"127.0.0.1", 0};
  config.models = directory / "models.json";
  config.profiles = directory / "profiles";
  config.feedback = false;  // what batches take depends on what else the machine does
  config.drain_grace = {};
  if (changes.frontend) changes.frontend(config);
  Result<frontend::Setup> setup = frontend::make_setup(config, 7);
  must(setup.status());
  return std::move(setup).value();
}

std::filesystem::path write_beside(const std::filesystem::path& directory,
                                   const std::map<std::string, std::string>& files) {
  for (const auto& [name, content] : files) write_file(directory / name, content);
  return directory;
}

// Files that no network is in, but that have a hash: simulated proxies do not look inside.
std::vector<config::ModelConfig> byte_models(const std::filesystem::path& directory,
                                             const std::vector<ClusterModel>& models) {
  std::vector<config::ModelConfig> made;
  for (const ClusterModel& model : models) {
    config::ModelConfig one;
    one.name = model.name;
    one.file = directory / (model.name + ".pt");
    write_file(one.file, "stands for model " + model.name);
    one.inputs = {{"x", DataType::uint8, {static_cast<std::int64_t>(model.bytes)}}};
    one.outputs = {{"y", DataType::uint8, {static_cast<std::int64_t>(model.bytes)}}};
    one.slo_ms = model.slo_ms;
    one.rate = model.rate;
    one.max_batch = 16;
    made.push_back(one);
  }
  return made;
}

std::vector<profile::Profile> profiles_of(const std::vector<ClusterModel>& models) {
  std::map<std::string, double> base_ms;
  std::map<std::string, double> slow_ms;
  for (const ClusterModel& model : models) {
    base_ms[model.name] = model.base_ms;
    slow_ms[model.name] = 2 * model.base_ms;
  }
  profile::Profile slow = serve::testing::card_profile(slow_ms);
  slow.name = "slow_card";
  return {serve::testing::card_profile(base_ms), std::move(slow)};
}

}  // namespace

Cluster::Cluster(const std::vector<ClusterModel>& models, frontend::CoreObserver observer,
                 ClusterChanges changes)
    : Cluster(make_directory(), models, std::move(observer), std::move(changes)) {}

Cluster::Cluster(const std::filesystem::path& directory, const std::vector<ClusterModel>& models,
                 frontend::CoreObserver observer, ClusterChanges changes)
    : Cluster(directory, byte_models(directory, models), profiles_of(models), std::move(observer),
              "[]", std::move(changes)) {}

Cluster::Cluster(const std::vector<config::ModelConfig>& models, const profile::Profile& profile,
                 frontend::CoreObserver observer, const std::string& applications,
                 ClusterChanges changes)
    : Cluster(make_directory(), models, std::vector{profile}, std::move(observer), applications,
              std::move(changes)) {}

Cluster::Cluster(const ClusterFiles& files, ClusterChanges changes)
    : Cluster(write_beside(make_directory(), files.beside), files.models, {files.profile}, {},
              std::move(changes)) {}

Cluster::Cluster(std::filesystem::path directory, const std::vector<config::ModelConfig>& models,
                 const std::vector<profile::Profile>& profiles, frontend::CoreObserver observer,
                 const std::string& applications, ClusterChanges changes)
    : Cluster(std::move(directory), models_text(models, applications), profiles,
              std::move(observer), std::move(changes)) {}

Cluster::Cluster(std::filesystem::path directory, const std::string& models,
                 const std::vector<profile::Profile>& profiles, frontend::CoreObserver observer,
                 ClusterChanges changes)
    : directory_(std::move(directory)),
      changes_(std::move(changes)),
      setup_(write_and_load(directory_, models, profiles, changes_)) {
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
  // The daemons outlive every handler of theirs: first nobody runs them any more.
  io_.stop();
  thread_.join();
  backends_.clear();
  frontend_.reset();
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
                                                    const std::string& proxy,
                                                    const std::string& devices) const {
  const std::filesystem::path file = directory_ / ("backend-" + node + ".json");
  write_file(file, R"({"node":")" + node + R"(","frontend":"127.0.0.1:)" +
                       std::to_string(backend_port_) + R"(","model_store":"store-)" + node +
                       R"(","profiles":"profiles","proxy":")" + GPULET_BINARY_DIR + "/bin/" +
                       proxy + R"(","devices":[)" + devices + "]}");
  return file;
}

std::filesystem::path Cluster::write_simulated_config(const std::string& node,
                                                      std::uint32_t devices,
                                                      const std::string& type) const {
  return write_backend_config(node, "gpulet-proxy-simulated",
                              R"({"type":")" + type + R"(","count":)" + std::to_string(devices) +
                                  R"(,"partitioning":"simulated"})");
}

void Cluster::add_backend(const std::string& node, std::uint32_t devices, const std::string& type) {
  start_backend(node, write_simulated_config(node, devices, type));
}

void Cluster::add_storing_backend(const std::string& node) {
  add_cpu_backend(node, "gpulet-proxy-simulated");
}

void Cluster::add_real_backend(const std::string& node) { add_cpu_backend(node, "gpulet-proxy"); }

void Cluster::add_onnx_backend(const std::string& node) {
  add_cpu_backend(node, "gpulet-proxy-onnx");
}

void Cluster::add_crashing_backend(const std::string& node, std::uint32_t devices) {
  add_card_backend(node, devices, "gpulet-proxy-crashing");
}

void Cluster::add_arithmetic_backend(const std::string& node, std::uint32_t devices) {
  add_card_backend(node, devices, "gpulet-proxy-arithmetic");
}

void Cluster::add_card_backend(const std::string& node, std::uint32_t devices,
                               const std::string& proxy) {
  start_backend(node, write_backend_config(node, proxy,
                                           R"({"type":"card","count":)" + std::to_string(devices) +
                                               R"(,"partitioning":"simulated"})"));
}

void Cluster::add_cpu_backend(const std::string& node, const std::string& proxy) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  int core = 0;
  while (!CPU_ISSET(core, &cores)) ++core;
  start_backend(node, write_backend_config(
                          node, proxy,
                          R"({"type":"card","partitioning":"cpu_quota","sizes":[100],"cores":[)" +
                              std::to_string(core) + "]}"));
}

void Cluster::add_gpu_backend(const std::string& node, const std::string& partitioning,
                              const backend::GpuEnvironment& places) {
  const std::string device = R"({"type":"card","partitioning":")" + partitioning + R"("})";
  start_backend(node, write_backend_config(node, "gpulet-proxy-fake-gpu", device), places);
}

void Cluster::start_backend(const std::string& node, const std::filesystem::path& config_file,
                            const backend::GpuEnvironment& places) {
  Result<config::BackendConfig> config = config::load_backend(config_file);
  must(config.status());
  if (changes_.backend) changes_.backend(config.value());
  // Another user would not find the daemon of MPS in the test's folder.
  if (!places.mps.directory.empty() && ::geteuid() == 0) config.value().proxy_user = "root";
  Result<backend::Setup> setup = backend::make_setup(config.value(), places);
  must(setup.status());
  on_daemons(
      [&] { backends_[node] = backend::BackendDaemon::start(io_, std::move(setup).value()); });
}

pid_t Cluster::spawn_backend(const std::string& node, std::uint32_t devices) {
  const std::string file = write_simulated_config(node, devices, "card").string();
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

void Cluster::wait_until_serving(Duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    const serve::FrontendStatus now = status();
    if (now.state == "serving" && !now.reorganising && now.schedulable) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the cores belong to the proxies
  }
  throw std::runtime_error("the cluster does not serve in time");
}

void Cluster::stop_frontend() {
  std::promise<void> done;
  net::asio::post(io_, [&] { frontend_->stop([&] { done.set_value(); }); });
  done.get_future().get();
}

}  // namespace gpulet::testing
