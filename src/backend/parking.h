// Parking: which loaded processes a backend keeps for later gpulets when theirs end, and which it
// loads ahead of demand. Under MPS the share of a process is fixed for its life, so a gpulet of
// another size needs another process; one that is parked serves at once. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::backend {

// Whether the process of such a gpulet may outlive it: its share stays as it was granted, takes
// nothing from others while no batch runs, and the memory of its models is known.
[[nodiscard]] bool may_park(const node::StartGpulet& order);

// What a process has loaded.
struct LoadedProcess {
  node::StartGpulet order;  // that it was started with
  // The batch sizes that it has yet to prepare beside the planned ones.
  std::uint32_t sizes_to_capture = 0;
};

// Whether the process can serve the gpulet of another order as if it had loaded its models anew. It
// may have loaded others beside them.
[[nodiscard]] bool can_serve(const LoadedProcess& process, const node::StartGpulet& order);
// ProxyReady::variants for the wanted models, of a process that reported `variants` for the loaded
// ones.
[[nodiscard]] std::vector<std::uint32_t> variants_for(const std::vector<ModelToLoad>& wanted,
                                                      const std::vector<ModelToLoad>& loaded,
                                                      const std::vector<std::uint32_t>& variants);

// Memory of one device, in MB.
struct ParkingSpace {
  double device = 0;   // all of it; 0: unlimited
  double most = 0;     // for parked processes
  double running = 0;  // of the gpulets

  // For parked processes beside the gpulets.
  [[nodiscard]] double allowed() const;
};

// What loading ahead starts next: the models of a running gpulet, at the next larger or smaller one
// of its device's sizes. Empty: nothing that is neither running nor parked fits. The order has the
// id of the running gpulet.
// `sizes`: ascending, by device. `left_mb`: for more parked processes, by device.
[[nodiscard]] std::optional<node::StartGpulet> next_ahead(
    const std::vector<node::StartGpulet>& running, const std::vector<LoadedProcess>& parked,
    const std::map<std::uint32_t, std::vector<Share>>& sizes,
    const std::map<std::uint32_t, double>& left_mb);

}  // namespace gpulet::backend
