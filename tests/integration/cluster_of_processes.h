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
#include "tests/support/process/process.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {

class ClusterOfProcesses {
 public:
  static constexpr std::size_t kFrontends = 3;
  static constexpr std::array<const char*, 3> kModels = {"a", "c", "d"};

  ClusterOfProcesses();

  void start(std::size_t frontend);
  // Sends the signal and waits for the end of the process.
  void end(std::size_t frontend, int signal);
  void signal(std::size_t frontend, int number) const { frontends_[frontend]->signal(number); }

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
  // The processes of the gpulets.
  [[nodiscard]] std::set<pid_t> proxies() const;

  [[nodiscard]] Etcd& etcd() { return etcd_; }
  struct Ports {
    std::uint16_t clients = 0;
    std::uint16_t http = 0;
    std::uint16_t grpc = 0;
  };
  [[nodiscard]] const Ports& ports(std::size_t frontend) const { return ports_[frontend]; }

 private:
  [[nodiscard]] std::optional<std::size_t> find_leader() const;

  Etcd etcd_;
  support::TemporaryFolder folder_;
  std::vector<Ports> ports_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::unique_ptr<Process>> backends_;
  std::vector<std::unique_ptr<Process>> frontends_;  // null: ended
};

}  // namespace gpulet::testing
