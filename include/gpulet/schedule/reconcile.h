// What must change to get from the gpulets that exist to a plan. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

// A gpulet as it runs: its size and the models it has loaded, with the largest batch each was
// prepared for; 0 where what it has loaded is a version that no plan wants.
struct LoadedModel {
  std::string name;
  std::uint32_t max_batch = 0;
  std::string version = {};  // serve::version_of

  friend auto operator<=>(const LoadedModel&, const LoadedModel&) = default;
};

struct RunningGpulet {
  GpuletId id;
  DeviceKey device;
  Share size;
  std::vector<LoadedModel> models;                   // by name
  std::optional<partition::MigInstance> instance{};  // on a device that is divided by MIG
  bool controlled = false;                           // as Service::controlled
};

struct Steps {
  struct Keep {  // serves the planned gpulet as it is
    GpuletId running;
    std::size_t planned = 0;  // index into plan.gpulets
  };
  std::vector<Keep> keep;
  std::vector<std::size_t> create;  // indices into plan.gpulets
  std::vector<GpuletId> retire;

  [[nodiscard]] bool empty() const { return create.empty() && retire.empty(); }
};

// A running gpulet can serve a planned one on its device, in its instance and with its size, if it
// holds every model of it at no smaller batch and both are controlled or neither is. Each running
// gpulet is kept for at most one planned one, exact sets of models first; reconcile of what already
// runs is empty. `create` follows the plan's order, `retire` ascending ids.
[[nodiscard]] Steps reconcile(const std::vector<RunningGpulet>& running, const Plan& plan);

}  // namespace gpulet::schedule
