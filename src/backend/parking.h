// Parking: which loaded processes a backend keeps for later gpulets when their own gpulets end, and
// which processes it loads ahead of demand. Under MPS the share of a process is fixed for its life,
// so a gpulet of another size needs another process. A parked one serves at once. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::backend {

// Whether the process of such a gpulet may outlive it: its share never changes and takes nothing
// from other gpulets while no batch runs, and the memory of its models is known.
[[nodiscard]] bool may_park(const node::StartGpulet& order);

struct LoadedProcess {
  node::StartGpulet order;  // with which it was started
  // How many batch sizes, beside the planned ones, it has not prepared yet.
  std::uint32_t sizes_to_capture = 0;
};

// Whether the process can serve the gpulet of `order` as well as a new process that loads its
// models. The process may have loaded further models.
[[nodiscard]] bool can_serve(const LoadedProcess& process, const node::StartGpulet& order);
// ProxyReady::variants for the `wanted` models, where a process reported `variants` for the
// `loaded` ones; 0 for a model that is not loaded.
[[nodiscard]] std::vector<std::uint32_t> variants_for(const std::vector<ModelToLoad>& wanted,
                                                      const std::vector<ModelToLoad>& loaded,
                                                      const std::vector<std::uint32_t>& variants);

// Memory of one device, in MB.
struct ParkingSpace {
  double device = 0;   // the device's total; 0: unlimited
  double most = 0;     // the most that parked processes may have
  double running = 0;  // what the gpulets have

  // What parked processes may have beside the gpulets.
  [[nodiscard]] double allowed() const;
};

// The process to load ahead next: with the models of a running gpulet, at the next larger or
// smaller size of its device, and with the id of that gpulet. A process that a running or parked
// one could replace is not loaded. Empty: none fits.
// `sizes`: by device, ascending. `left_mb`: by device, the memory for more parked processes.
[[nodiscard]] std::optional<node::StartGpulet> next_ahead(
    const std::vector<node::StartGpulet>& running, const std::vector<LoadedProcess>& parked,
    const std::map<std::uint32_t, std::vector<Share>>& sizes,
    const std::map<std::uint32_t, double>& left_mb);

}  // namespace gpulet::backend
