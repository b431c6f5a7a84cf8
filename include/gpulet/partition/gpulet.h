// What planning, the protocol and backends call devices and gpulets: a device, the models that a
// gpulet is to serve, and those that it has loaded. Plain values; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::partition {

// Devices are numbered from 0 within their node.
struct DeviceKey {
  std::string node;
  std::uint32_t device = 0;

  friend auto operator<=>(const DeviceKey&, const DeviceKey&) = default;
};

struct Device {
  DeviceKey key;
  std::string type;          // the name of a profile
  std::string partitioning;  // "mps", "mig", "green", "cpu_quota", "simulated"
  std::vector<Share> sizes;  // sizes that a gpulet may have, ascending
  std::uint32_t max_partitions = 2;
  double memory_mb = 0;  // 0: unlimited
  // Set where MIG divides the device. A gpulet is then a process in one of its instances, and
  // `sizes` are the shares of the geometry's profiles.
  std::optional<partition::MigGeometry> mig{};
  // The most processes of one model that share a MIG instance under MPS. Where the profile has the
  // latencies of several (Profile::knows_processes), a plan chooses their number. Otherwise an
  // instance has this many, and the profile describes one of them while all run.
  std::uint32_t processes_per_instance = 1;
  double cores = 0;  // CPU cores; 0 for other devices

  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] inline bool is_cpu(const Device& device) { return device.cores > 0; }

// Limits of the messages between frontend and backend (protocol/limits.h). A plan beyond them
// cannot be sent.
inline constexpr std::size_t kMostModelsOfGpulet = 1024;
inline constexpr std::size_t kMostGpuletsOfNode = 4096;

struct Assignment {
  std::string model;
  double rate = 0;          // requests per second of the model that this gpulet serves
  std::uint32_t batch = 0;  // largest batch of a round
  double latency_ms = 0;    // of one batch, including slowdown and margin
  double slowdown = 1;      // caused by the other gpulets of the device
  double slo_ms = 0;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// How a gpulet takes requests.
enum class Service : std::uint8_t {
  // Its models run one batch each per round, and the plan guarantees their rates.
  rounds = 0,
  // An instance of a whole GPU that holds every model. Whenever the GPU is free it runs one request
  // of the most urgent model (ROMA, algorithm 1). The plan guarantees nothing: rates and the duty
  // cycle are 0.
  by_need = 1,
  // An instance of one model on a CPU, which runs one request at a time. `size` is its initial
  // size; a controller then sets its cores. The plan guarantees nothing.
  controlled = 2,
};
// The enumerator's name.
[[nodiscard]] constexpr std::string_view to_string(Service service) {
  if (service == Service::rounds) return "rounds";
  return service == Service::by_need ? "by_need" : "controlled";
}

// The size and the round that the policy chose for a gpulet, before spare share was divided
// (schedule/scaling.h).
struct PolicyChoice {
  Share size;
  double duty_cycle_ms = 0;
  std::vector<Assignment> assignments;  // their rates do not count

  friend bool operator==(const PolicyChoice&, const PolicyChoice&) = default;
};

// A model that a running gpulet has loaded.
struct RunningModel {
  std::string name;
  std::uint32_t max_batch = 0;  // largest prepared batch; 0: a version that no plan uses
  std::string version = {};     // version_of() of its message

  friend auto operator<=>(const RunningModel&, const RunningModel&) = default;
};

}  // namespace gpulet::partition
