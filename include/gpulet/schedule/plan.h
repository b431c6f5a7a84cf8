// A plan: which gpulets exist, on which device, and which models take turns in each. Mathematics of
// a plan: docs/scheduling.md. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/schedule/cluster.h"

namespace gpulet::schedule {

// What the protocol between frontend and backend carries (net/codec/limits.h): a plan beyond it
// could not be told.
inline constexpr std::size_t kMostModelsOfGpulet = 1024;
inline constexpr std::size_t kMostGpuletsOfNode = 4096;

struct Assignment {
  std::string model;
  double rate = 0;          // requests per second that this gpulet takes of the model
  std::uint32_t batch = 0;  // largest batch of a round
  double latency_ms = 0;  // of one batch, slowdown and margin included (exec in docs/scheduling.md)
  double slowdown = 1;    // by what runs beside the gpulet on its device
  double slo_ms = 0;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// How a gpulet takes requests.
enum class Service : std::uint8_t {
  rounds = 0,  // its models take turns as the mathematics of a plan has it; rates are promised
  // The executable of a whole device: whenever it is free, one request of the model that needs it
  // most (ROMA, algorithm 1). Nothing is promised, so rates and the duty cycle are 0.
  by_need = 1,
  // The executable of one model on a CPU, one request at a time. `size` is what it starts with;
  // from then on a controller sets its cores. Nothing is promised either.
  controlled = 2,
};
// As written above.
[[nodiscard]] constexpr std::string_view to_string(Service service) {
  if (service == Service::rounds) return "rounds";
  return service == Service::by_need ? "by_need" : "controlled";
}

struct PlannedGpulet {
  DeviceKey device;
  Share size;
  double duty_cycle_ms = 0;  // one round of all assignments
  std::vector<Assignment> assignments;
  // On a device that is divided by MIG: where it runs. Gpulets that share it are processes of one
  // model (Device::processes_per_instance).
  std::optional<partition::MigInstance> instance{};
  Service service = Service::rounds;

  friend bool operator==(const PlannedGpulet&, const PlannedGpulet&) = default;
};

struct Unserved {
  std::string model;
  double rate = 0;     // requests per second without a place
  std::string reason;  // in words, with the mend where there is one

  friend bool operator==(const Unserved&, const Unserved&) = default;
};

struct Plan {
  std::string policy;
  std::vector<PlannedGpulet> gpulets;  // by device, then descending size
  std::vector<Unserved> unserved;      // by model; empty where the plan is schedulable
  std::vector<std::string> notes;      // what the policy has to say about its choices
  // No plan that serves the whole demand uses fewer devices of these types; only some policies
  // know.
  std::optional<std::uint32_t> lower_bound;

  [[nodiscard]] bool schedulable() const { return unserved.empty(); }
  [[nodiscard]] std::uint32_t devices_used() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace gpulet::schedule
