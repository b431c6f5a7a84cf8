// ClusterOfProcesses: etcd, three frontends f0 to f2, and the backends n0 and n1 with simulated
// devices, as processes on loopback. They serve models a, c and d, which return the byte that they
// take. Each model has a type of device of its own, so that each can have another owner.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/load/call.h"
#include "gpulet/protocol/messages.h"
#include "tests/support/process/cuttable_link.h"
#include "tests/support/process/process.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {

class ClusterOfProcesses {
 public:
  static constexpr std::size_t kFrontends = 3;
  static constexpr std::array<const char*, 3> kModels = {"a", "c", "d"};

  struct Options {
    // The files of models that clients load are there for every frontend, or for one of them alone.
    std::optional<std::size_t> files_at = std::nullopt;
    bool cuttable = false;        // for split(), cut_from_nodes() and bytes_at()
    std::size_t input_bytes = 1;  // of the models below; they return the first one
    // The models' files are below this URL. The first frontend, which mostly leads, looks last.
    std::string store{};
    // Served for real on one core of this machine, beside those above: entries of the models file,
    // their files by name, and their latencies in ms (tests/support/serve/world.h, card_profile).
    nlohmann::json onnx_models = nlohmann::json::array();
    std::map<std::string, std::string> onnx_files{};
    std::map<std::string, double> onnx_ms{};
  };
  ClusterOfProcesses() : ClusterOfProcesses(Options()) {}
  explicit ClusterOfProcesses(const Options& options);

  void start(std::size_t frontend);
  // Sends the signal and waits for the end of the process.
  void end(std::size_t frontend, int signal);
  void signal(std::size_t frontend, int number) const { frontends_[frontend]->signal(number); }

  // From now on, this frontend and this node reach each other and nothing else. At most two
  // frontends may run: connections between the others are cut as well.
  void split(std::size_t frontend, std::size_t node);
  void heal();
  // From now on, what that frontend and the nodes send to each other gets lost.
  void cut_from_nodes(std::size_t frontend);
  // Bytes that other frontends sent that frontend as the owner, or got from it, and those that
  // it exchanged with nodes.
  [[nodiscard]] std::uint64_t bytes_at(std::size_t frontend) const;

  // Whether that frontend answers a request with a result.
  [[nodiscard]] bool serves(std::size_t frontend, const std::string& model = "a") const;
  // Waits until all frontends that run serve. Returns whether they do.
  [[nodiscard]] bool all_serve() const;
  // The status document of that frontend itself; null where there is none.
  [[nodiscard]] nlohmann::json status(std::size_t frontend) const;
  // The member that owns each model, as the leader says it; empty: not known now.
  [[nodiscard]] std::map<std::string, std::string> owners() const;
  // Waits until every frontend that runs owns a model.
  [[nodiscard]] bool all_own() const;
  // Waits until one of the running frontends leads, and returns it; kFrontends: none does.
  [[nodiscard]] std::size_t leader() const;
  [[nodiscard]] load::Target target(std::size_t frontend) const;
  // The change that loads a model like a, with a file of its own.
  [[nodiscard]] ModelsChange load_of(const std::string& model) const;
  // The processes of the gpulets, of all nodes or of one.
  [[nodiscard]] std::set<pid_t> proxies() const;
  [[nodiscard]] std::set<pid_t> proxies(std::size_t node) const {
    return backends_[node]->children();
  }

  [[nodiscard]] Etcd& etcd() { return etcd_; }
  struct Ports {
    std::uint16_t clients = 0;
    std::uint16_t http = 0;
    std::uint16_t grpc = 0;
  };
  [[nodiscard]] const Ports& ports(std::size_t frontend) const { return ports_[frontend]; }

 private:
  static constexpr std::size_t kNodes = 2;
  // The port to use in place of `target`.
  [[nodiscard]] std::uint16_t through(std::unique_ptr<CuttableLink>& link,
                                      std::uint16_t target) const;
  // The device for the ONNX models.
  [[nodiscard]] nlohmann::json add_onnx_models(nlohmann::json& models);
  [[nodiscard]] std::filesystem::path configure_frontend(std::size_t frontend,
                                                         std::uint16_t for_backends);
  [[nodiscard]] std::filesystem::path configure_backend(
      std::size_t node, const std::vector<std::uint16_t>& frontend_ports,
      const nlohmann::json& devices);
  [[nodiscard]] std::optional<std::size_t> find_leader() const;

  const Options options_;
  Etcd etcd_;
  support::TemporaryFolder folder_;
  std::vector<Ports> ports_;
  std::vector<std::filesystem::path> files_;
  // Null: connections are direct.
  std::array<std::unique_ptr<CuttableLink>, kFrontends> to_etcd_{};
  std::array<std::unique_ptr<CuttableLink>, kFrontends> to_peer_{};  // from the other frontends
  std::array<std::array<std::unique_ptr<CuttableLink>, kFrontends>, kNodes> to_frontend_{};
  // Last: they end before their links.
  std::vector<std::unique_ptr<Process>> backends_;
  std::vector<std::unique_ptr<Process>> frontends_;  // null: ended
};

}  // namespace gpulet::testing
