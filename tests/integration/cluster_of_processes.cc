#include "tests/integration/cluster_of_processes.h"

#include <sched.h>

#include <stdexcept>

#include "gpulet/load/call.h"
#include "gpulet/profile/store.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing {
namespace {

std::string on_loopback(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

nlohmann::json entry_of(const std::string& model, std::size_t input_bytes) {
  const nlohmann::json tensor{{"type", "UINT8"}, {"shape", {1}}};
  nlohmann::json input = tensor;
  input["name"] = "x";
  input["shape"] = {input_bytes};
  nlohmann::json output = tensor;
  output["name"] = "y";
  return {{"name", model},
          {"file", model + ".pt"},
          {"slo_ms", 2000},
          {"rate", 20},
          {"max_batch", 16},
          {"inputs", nlohmann::json::array({input})},
          {"outputs", nlohmann::json::array({output})}};
}

int first_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  int core = 0;
  while (!CPU_ISSET(core, &cores)) ++core;
  return core;
}

std::string type_of(const std::string& model) { return model == "a" ? "card" : "card-" + model; }

}  // namespace

ClusterOfProcesses::ClusterOfProcesses(const Options& options) : options_(options) {
  nlohmann::json models = nlohmann::json::array();
  nlohmann::json devices = nlohmann::json::array();
  for (const std::string model : kModels) {
    profile::Profile profile = serve::testing::card_profile({{model, 4}, {"b", 4}});
    profile.name = type_of(model);
    if (model != "a") profile.models.erase("b");
    const auto written = profile::write_profile(profile, folder_.path() / "profiles");
    if (!written.ok()) throw std::runtime_error(written.to_string());
    folder_.write(model + ".pt", "stands for model " + model);
    models.push_back(entry_of(model, options_.input_bytes));
    if (!options_.store.empty()) models.back()["file"] = options_.store + "/" + model + ".pt";
    devices.push_back({{"type", profile.name}, {"count", 1}, {"partitioning", "simulated"}});
  }
  folder_.write("b.pt", "stands for model b");
  nlohmann::json real = nlohmann::json::array();
  if (!options_.onnx_models.empty()) real.push_back(add_onnx_models(models));
  folder_.write("models.json", nlohmann::json{{"models", models}}.dump());
  std::vector<std::uint16_t> backend_ports;
  for (std::size_t i = 0; i < kFrontends; ++i) {
    ports_.push_back({free_port(), free_port(), free_port()});
    backend_ports.push_back(free_port());
    files_.push_back(configure_frontend(i, backend_ports.back()));
    frontends_.push_back(start_daemon("gpulet-frontend", files_.back()));
  }
  for (std::size_t node = 0; node < kNodes; ++node) {
    nlohmann::json of_node = devices;
    if (node == 0) of_node.insert(of_node.end(), real.begin(), real.end());
    backends_.push_back(
        start_daemon("gpulet-backend", configure_backend(node, backend_ports, of_node)));
  }
}

nlohmann::json ClusterOfProcesses::add_onnx_models(nlohmann::json& models) {
  profile::Profile profile = serve::testing::card_profile(options_.onnx_ms);
  profile.name = "core";
  const auto written = profile::write_profile(profile, folder_.path() / "profiles");
  if (!written.ok()) throw std::runtime_error(written.to_string());
  for (const auto& [name, content] : options_.onnx_files) folder_.write(name, content);
  models.insert(models.end(), options_.onnx_models.begin(), options_.onnx_models.end());
  return {{"type", profile.name},
          {"partitioning", "cpu_quota"},
          {"sizes", {100}},
          {"cores", {first_core()}}};
}

std::uint16_t ClusterOfProcesses::through(std::unique_ptr<CuttableLink>& link,
                                          std::uint16_t target) const {
  if (!options_.cuttable) return target;
  link = std::make_unique<CuttableLink>(target);
  return link->port();
}

std::filesystem::path ClusterOfProcesses::configure_frontend(std::size_t frontend,
                                                             std::uint16_t for_backends) {
  const std::string member = "f" + std::to_string(frontend);
  const Ports& ports = ports_[frontend];
  const bool has_files = !options_.files_at || *options_.files_at == frontend;
  const std::uint16_t for_peers = free_port();
  const nlohmann::json config{
      {"listen", on_loopback(ports.clients)},
      {"backend_listen", on_loopback(for_backends)},
      {"http", on_loopback(ports.http)},
      {"grpc", on_loopback(ports.grpc)},
      {"metrics", "off"},
      {"drain_grace_s", 0},
      {"models", "models.json"},
      {"model_format", "any"},
      {"profiles", "profiles"},
      {"model_root", has_files ? "." : "files-of-" + member},
      {"remote_stores",
       {{"cache", "cache-" + member}, {"poll_s", 1 + 4 * (kFrontends - 1 - frontend)}}},
      {"cluster",
       {{"name", "test"},
        {"member", member},
        {"model_store", "store-" + member},
        {"address", on_loopback(ports.clients)},
        {"peer_listen", on_loopback(for_peers)},
        {"peer_address", on_loopback(through(to_peer_[frontend], for_peers))},
        {"etcd", {on_loopback(through(to_etcd_[frontend], etcd_.port()))}},
        {"settling_s", 0.5},
        {"lease_s", 2}}}};
  return folder_.write(member + ".json", config.dump());
}

std::filesystem::path ClusterOfProcesses::configure_backend(
    std::size_t node, const std::vector<std::uint16_t>& frontend_ports,
    const nlohmann::json& devices) {
  const std::string name = "n" + std::to_string(node);
  nlohmann::json frontends = nlohmann::json::array();
  for (std::size_t i = 0; i < kFrontends; ++i)
    frontends.push_back(on_loopback(through(to_frontend_[node][i], frontend_ports[i])));
  const nlohmann::json config{
      {"node", name},
      {"frontends", frontends},
      {"model_store", "store-" + name},
      {"profiles", "profiles"},
      {"warm_proxies", 0},
      {"local_socket", options_.cuttable ? "off" : "on"},  // a socket would pass by the links
      {"devices", devices}};
  return folder_.write(name + ".json", config.dump());
}

void ClusterOfProcesses::split(std::size_t frontend, std::size_t node) {
  to_etcd_[frontend]->silence();
  for (const auto& link : to_peer_) link->silence();
  for (std::size_t n = 0; n < kNodes; ++n) {
    for (std::size_t i = 0; i < kFrontends; ++i) {
      if ((i == frontend) != (n == node)) to_frontend_[n][i]->silence();
    }
  }
}

void ClusterOfProcesses::heal() {
  for (const auto& link : to_etcd_) link->heal();
  for (const auto& link : to_peer_) link->heal();
  for (const auto& of_node : to_frontend_) {
    for (const auto& link : of_node) link->heal();
  }
}

void ClusterOfProcesses::cut_from_nodes(std::size_t frontend) {
  for (const auto& of_node : to_frontend_) of_node[frontend]->silence();
}

std::uint64_t ClusterOfProcesses::bytes_at(std::size_t frontend) const {
  std::uint64_t bytes = to_peer_[frontend]->received();
  for (const auto& of_node : to_frontend_) bytes += of_node[frontend]->received();
  return bytes;
}

void ClusterOfProcesses::start(std::size_t frontend) {
  frontends_[frontend] = start_daemon("gpulet-frontend", files_[frontend]);
}

void ClusterOfProcesses::end(std::size_t frontend, int signal) {
  frontends_[frontend]->end(signal);
  frontends_[frontend].reset();
}

bool ClusterOfProcesses::serves(std::size_t frontend, const std::string& model) const {
  try {
    StreamClient client(ports_[frontend].clients);
    const auto reply =
        client.ask(byte_request(model, 1, options_.input_bytes), std::chrono::seconds(2));
    return reply.has_value() && reply->status.ok();
  } catch (const std::exception&) {
    return false;  // it does not listen
  }
}

load::Target ClusterOfProcesses::target(std::size_t frontend) const {
  return {"127.0.0.1", ports_[frontend].clients};
}

ModelsChange ClusterOfProcesses::load_of(const std::string& model) const {
  ModelsChange change;
  change.file = folder_.path() / "by_client.json";
  const std::string text =
      nlohmann::json{{"models", nlohmann::json::array({entry_of(model, options_.input_bytes)})}}
          .dump();
  const auto bytes = std::as_bytes(std::span(text));
  change.text = Bytes::own(std::vector<std::byte>(bytes.begin(), bytes.end()));
  return change;
}

bool ClusterOfProcesses::all_serve() const {
  return comes_true([&] {
    for (std::size_t i = 0; i < kFrontends; ++i) {
      if (frontends_[i] != nullptr && !serves(i)) return false;
    }
    return true;
  });
}

nlohmann::json ClusterOfProcesses::status(std::size_t frontend) const {
  const auto text = load::fetch_status({"127.0.0.1", ports_[frontend].clients},
                                       std::chrono::seconds(2), load::StatusOf::target);
  return text.ok() ? nlohmann::json::parse(text.value(), nullptr, false) : nlohmann::json();
}

std::optional<std::size_t> ClusterOfProcesses::find_leader() const {
  for (std::size_t i = 0; i < kFrontends; ++i) {
    if (frontends_[i] == nullptr) continue;
    const nlohmann::json document = status(i);
    if (document.is_object() && document.at("cluster").at("leads") == true) return i;
  }
  return std::nullopt;
}

std::size_t ClusterOfProcesses::leader() const {
  std::optional<std::size_t> found;
  static_cast<void>(comes_true([&] {
    found = find_leader();
    return found.has_value();
  }));
  return found.value_or(kFrontends);
}

std::map<std::string, std::string> ClusterOfProcesses::owners() const {
  std::map<std::string, std::string> owners;
  const std::optional<std::size_t> leading = find_leader();
  if (!leading) return owners;
  const nlohmann::json document = status(*leading);
  if (!document.is_object()) return owners;
  for (const nlohmann::json& model : document.at("models"))
    owners[model.at("name")] = model.value("owner", "f" + std::to_string(*leading));
  return owners;
}

bool ClusterOfProcesses::all_own() const {
  return comes_true([this] {
    std::set<std::string> owning;
    for (const auto& [model, owner] : owners()) owning.insert(owner);
    for (std::size_t i = 0; i < kFrontends; ++i) {
      if (frontends_[i] != nullptr && !owning.contains("f" + std::to_string(i))) return false;
    }
    return true;
  });
}

std::set<pid_t> ClusterOfProcesses::proxies() const {
  std::set<pid_t> all;
  for (const auto& backend : backends_) all.merge(backend->children());
  return all;
}

}  // namespace gpulet::testing
