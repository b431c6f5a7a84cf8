#include "bench/serve/support/site.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/store.h"

namespace gpulet::bench {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr Duration kTimeToStart = std::chrono::seconds(20);
constexpr Duration kTimeToEnd = std::chrono::seconds(40);
constexpr Duration kLook = std::chrono::milliseconds(20);

std::filesystem::path make_directory(const std::filesystem::path& keep) {
  if (!keep.empty()) {
    std::filesystem::create_directories(keep);
    return std::filesystem::absolute(keep);
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "gpulet-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  return pattern;
}

// A free port below the system's range for outgoing connections: otherwise a client that retries
// while the frontend is down could occupy the frontend's port.
std::uint16_t free_port(std::uint16_t from) {
  for (std::uint16_t port = from; port < 32000; ++port) {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool bound = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(probe);
    if (bound) return port;
  }
  throw std::runtime_error("no free port below 32000");
}

Json json_of(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& tensor : tensors) {
    array.push_back({{"name", tensor.name},
                     {"type", std::string(gpulet::to_string(tensor.type))},
                     {"shape", tensor.shape}});
  }
  return array;
}

Json json_of(const config::TlsFiles& files, bool with_authority) {
  Json json{{"certificate", files.certificate.string()}, {"key", files.key.string()}};
  if (with_authority) json["authority"] = files.authority.string();
  return json;
}

profile::Profile paced(const profile::Profile& profile, double pace) {
  profile::Corrections corrections;
  for (const auto& [name, model] : profile.models) corrections[profile.name][name].factor = pace;
  return profile::corrected({{profile.name, profile}}, corrections).at(profile.name);
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

std::vector<SiteModel> all_models(const SiteOptions& options) {
  std::vector<SiteModel> models = options.models;
  models.insert(models.end(), options.more_models.begin(), options.more_models.end());
  return models;
}

}  // namespace

std::vector<SiteModel> real_models(const std::filesystem::path& models_file) {
  const auto loaded = config::load_models(models_file);
  if (!loaded.ok()) throw std::runtime_error(loaded.status().to_string());
  std::vector<SiteModel> models;
  for (const config::ModelConfig& one : loaded.value()) {
    SiteModel& model = models.emplace_back();
    model.name = one.name;
    model.slo_ms = one.slo_ms;
    model.rate = one.rate;
    model.max_batch = one.max_batch;
    model.file = one.file;
    model.inputs = one.inputs;
    model.outputs = one.outputs;
  }
  return models;
}

profile::Profile profile_of(const SiteOptions& options) {
  if (!options.measured.empty()) {
    auto profiles = profile::read_profiles(options.measured);
    if (!profiles.ok()) throw std::runtime_error(profiles.status().to_string());
    return profiles.value().begin()->second;
  }
  profile::Profile profile;
  profile.name = "card";
  for (const SiteModel& model : all_models(options)) {
    std::vector<profile::LatencySample> samples;
    for (const int percent : kSizes) {
      for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
        samples.push_back(
            {batch, Share{percent}, (model.fixed_ms + model.item_ms * batch) * 100 / percent});
      }
    }
    profile.models.emplace(
        model.name,
        profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, model.memory_mb});
  }
  return profile;
}

std::vector<config::NodeConfig> nodes_of(const SiteOptions& options) {
  const bool real = !options.measured.empty();
  std::vector<config::NodeConfig> nodes;
  for (std::uint32_t i = 0; i < options.backends; ++i) {
    config::NodeConfig& node = nodes.emplace_back();
    node.name = "n" + std::to_string(i);
    config::DeviceConfig& device = node.devices.emplace_back();
    device.type = profile_of(options).name;
    device.partitioning = real ? "cpu_quota" : "simulated";
    device.count = real ? 1 : options.devices_each;
    for (const int percent : kSizes) {
      if (!real || percent != 50) device.sizes.push_back(Share{percent});
    }
    // Takes the first core last: frontend, backends and client need one, too.
    if (real) device.cores = {(i + 1) % std::max(1U, std::thread::hardware_concurrency())};
    if (real) device.max_partitions = 4;
  }
  return nodes;
}

Site::Site(SiteOptions options)
    : options_(std::move(options)),
      directory_(make_directory(options_.keep)),
      mark_("GPULET_BENCH=" + directory_.string()),
      backends_(options_.backends) {
  const auto first = static_cast<std::uint16_t>(12000 + ::getpid() % 19000);
  client_port_ = free_port(first);
  backend_port_ = free_port(client_port_ + 1);
  http_port_ = free_port(backend_port_ + 1);
  grpc_port_ = free_port(http_port_ + 1);
  metrics_port_ = free_port(grpc_port_ + 1);
  if (options_.tls) make_certificates();
  write_files();
  start_frontend();
}

Site::~Site() {
  frontend_.reset();
  for (auto& backend : backends_) {
    if (backend != nullptr) backend->signal(SIGTERM);
  }
  backends_.clear();
  std::error_code ignored;
  if (options_.keep.empty()) std::filesystem::remove_all(directory_, ignored);
}

load::Target Site::target() const {
  load::Target target("127.0.0.1", client_port_);
  target.tls = client_tls_;
  return target;
}

void Site::make_certificates() {
  authority_ = std::make_unique<testing::Authority>(directory_, "authority");
  config::TlsFiles trusted;
  trusted.authority = authority_->file();
  const auto context = net::TlsContext::client(trusted);
  if (!context.ok()) throw std::runtime_error(context.status().to_string());
  client_tls_ = context.value();
}

config::TlsFiles Site::issue(const std::string& name, const std::vector<std::string>& names) const {
  return authority_->issue(name, names);
}

void Site::write_models(const std::vector<SiteModel>& models) const {
  Json entries = Json::array();
  for (const SiteModel& model : models) {
    std::filesystem::path file = model.file;
    if (file.empty()) file = model_file(model.name);
    entries.push_back({{"name", model.name},
                       {"file", file.string()},
                       {"inputs", json_of(model.inputs)},
                       {"outputs", json_of(model.outputs)},
                       {"slo_ms", model.slo_ms},
                       {"rate", model.rate},
                       {"max_batch", model.max_batch}});
  }
  const std::filesystem::path next = directory_ / "models.json.next";
  write(next, Json{{"models", entries}}.dump(1));
  std::filesystem::rename(next, directory_ / "models.json");
}

void Site::withdraw_model(const std::string& model) const {
  std::vector<SiteModel> others = options_.models;
  std::erase_if(others, [&model](const SiteModel& one) { return one.name == model; });
  write_models(others);
}

void Site::serve_more_models() const { write_models(all_models(options_)); }

void Site::write_backend(const config::NodeConfig& node) const {
  const config::DeviceConfig& device = node.devices.front();
  Json sizes = Json::array();
  for (const Share size : device.sizes) sizes.push_back(size.percent);
  Json described{{"type", device.type},
                 {"count", device.count},
                 {"partitioning", device.partitioning},
                 {"sizes", sizes},
                 {"max_partitions", device.max_partitions}};
  if (!device.cores.empty()) described["cores"] = device.cores;
  const bool real = !options_.measured.empty();
  const std::filesystem::path proxy = options_.programs / (real ? "gpulet-proxy" : options_.proxy);
  Json config{{"node", node.name},
              {"frontend", "127.0.0.1:" + std::to_string(backend_port_)},
              {"model_store", "store-" + node.name},
              // inventory.h finds proxies by it.
              {"proxy_environment", {"GPULET_BENCH"}},
              {"profiles", "device-profiles"},
              {"proxy", proxy.string()},
              {"devices", Json::array({described})}};
  if (!options_.local_socket) config["local_socket"] = "off";
  if (options_.parking_mb > 0)
    config["parking"] = {{"memory_mb", options_.parking_mb}, {"load_ahead", "on"}};
  if (authority_ != nullptr) config["tls"] = json_of(issue(node.name, {node.name}), true);
  write(directory_ / ("backend-" + node.name + ".json"), config.dump(1));
}

std::filesystem::path Site::model_file(const std::string& model) const {
  return directory_ / (model + ".pt");
}

// Simulated proxies do not read the contents.
std::string Site::model_text(const std::string& model, std::uint64_t version) {
  const std::string text = "stands for model " + model;
  return version == 0 ? text : text + ", version " + std::to_string(version);
}

void Site::write_model_file(const std::string& model, std::uint64_t version) const {
  const std::filesystem::path next = directory_ / (model + ".pt.next");
  write(next, model_text(model, version));
  std::filesystem::rename(next, model_file(model));
}

std::filesystem::path Site::store(std::size_t backend) const {
  return directory_ / ("store-n" + std::to_string(backend));
}

void Site::write_files() const {
  for (const SiteModel& model : all_models(options_)) {
    if (model.file.empty()) write_model_file(model.name, 0);
  }
  write_models(options_.models);
  const auto write_profile = [this](const profile::Profile& profile, const char* folder) {
    const Status written = profile::write_profile(profile, directory_ / folder);
    if (!written.ok()) throw std::runtime_error(written.to_string());
  };
  const profile::Profile believed = profile_of(options_);
  write_profile(believed, "profiles");
  write_profile(paced(believed, options_.device_pace), "device-profiles");
  const std::string host = "127.0.0.1:";
  const auto place = [&host](bool on, std::uint16_t port) {
    return on ? host + std::to_string(port) : std::string("off");
  };
  Json config{{"listen", host + std::to_string(client_port_)},
              {"backend_listen", host + std::to_string(backend_port_)},
              {"http", place(options_.http, http_port_)},
              {"grpc", place(options_.grpc, grpc_port_)},
              {"metrics", place(options_.metrics, metrics_port_)},
              {"models", "models.json"},
              {"profiles", "profiles"},
              {"limits",
               {{"max_connections", options_.max_connections},
                {"max_connections_per_address", options_.max_connections},
                {"first_message_s", options_.first_message_s}}},
              {"period_s", options_.period_s}};
  if (options_.io_threads) config["io_threads"] = *options_.io_threads;
  if (authority_ != nullptr) {
    const config::TlsFiles own = issue("frontend", {"127.0.0.1", "localhost"});
    config["tls"] = json_of(own, false);
    config["backend_tls"] = json_of(own, true);
  }
  write(directory_ / "frontend.json", config.dump(1));
  for (const config::NodeConfig& node : nodes_of(options_)) write_backend(node);
}

void Site::start_frontend() {
  frontend_ = std::make_unique<DaemonProcess>(
      options_.programs / "gpulet-frontend",
      std::vector<std::string>{"--config", (directory_ / "frontend.json").string()},
      directory_ / "frontend.log", mark_);
}

void Site::start_backends() {
  for (std::size_t i = 0; i < backends_.size(); ++i) start_backend(i);
}

void Site::start_backend(std::size_t index, std::uint16_t frontend_port) {
  const std::string node = "n" + std::to_string(index);
  const std::uint16_t port = frontend_port == 0 ? backend_port_ : frontend_port;
  backends_.at(index) = std::make_unique<DaemonProcess>(
      options_.programs / "gpulet-backend",
      std::vector<std::string>{"--config", (directory_ / ("backend-" + node + ".json")).string(),
                               "--frontend", "127.0.0.1:" + std::to_string(port)},
      directory_ / ("backend-" + node + ".log"), mark_);
}

StatusView Site::wait_until(const std::function<bool(const StatusView&)>& what, Duration patience,
                            const std::string& wanted) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    const Result<StatusView> view = fetch_view(target());
    if (view.ok() && what(view.value())) return view.value();
    if (!frontend_->alive()) break;
    std::this_thread::sleep_for(kLook);
  }
  options_.keep = directory_;  // keeps the logs of the failure
  throw std::runtime_error("not in time: " + wanted + "; logs: " + directory_.string());
}

StatusView Site::wait_until_serving(Duration patience) {
  return wait_until([](const StatusView& view) { return view.settled(); }, patience, "serving");
}

Stream Site::stream(const std::string& model, std::vector<RateFrom> rates) const {
  for (const SiteModel& one : options_.models) {
    if (one.name != model) continue;
    std::size_t bytes = 0;
    for (const TensorSpec& input : one.inputs) bytes += byte_size(input).value();
    Stream stream;
    stream.model = model;
    stream.inputs = one.inputs;
    stream.payload = Bytes::own(std::vector<std::byte>(bytes));
    stream.slo = from_ms(one.slo_ms);
    stream.rates = std::move(rates);
    return stream;
  }
  throw std::runtime_error("the site has no model " + model);
}

bool Site::stop() {
  bool well = true;
  const auto end = [&well](DaemonProcess& daemon) {
    well = daemon.wait_for_end(kTimeToEnd) && daemon.end() == 0 && well;
  };
  frontend_->signal(SIGTERM);
  end(*frontend_);
  for (auto& backend : backends_) {
    if (backend != nullptr) backend->signal(SIGTERM);
  }
  for (auto& backend : backends_) {
    if (backend != nullptr) end(*backend);
  }
  return well;
}

}  // namespace gpulet::bench
