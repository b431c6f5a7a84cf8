// cpu_quota: a CPU device is a set of cores, and a gpulet of p percent gets p percent of their
// time.
//
// Mechanisms, found out at run time:
// - cgroup v2 or v1: the kernel's CPU bandwidth control, in a cgroup per gpulet below the backend's
//   own, named gpulet-<backend pid>-<gpulet id>. The period is 10 ms: with the customary 100 ms a
//   batch of 12 ms takes 12 ms or 73, as luck has it. Cgroups that a dead backend left are removed
//   when a driver is made.
// - pacing, where no cgroup may be written: a thread of this process measures the gpulet's CPU time
//   and stops and continues the process by signal, as a token bucket of the same period. Coarser,
//   and its thread costs CPU itself.
// While a process loads, it may use any core of the machine, and as much time as the whole device
// has: at a tenth of the usual weight under cgroups, and under pacing whatever share no serving
// gpulet of the device holds (its own at least), so that it does not starve them.
//
// Once it serves, a process is bound to the device's cores; its numeric libraries are told, by
// environment, to use as many threads as the share has whole cores (at least one): a second thread
// that spins would burn the quota. One that is claimed as adjustable has as many threads as the
// device has cores, none of which spins.
//
// adjust() takes any amount above 0 up to the device's cores. Below 0.1 cores the cgroup's period
// is longer than 10 ms, as the kernel takes no quota below 1 ms: 20 ms for 0.05 cores, and 1 s for
// 0.001, the least that is held.
//
// With MemoryLimits, where cgroups hold the shares and the memory controller is there as well, each
// gpulet has a limit of memory too: what its process takes beyond it ends that process, and no
// other. What a process took before it was attached does not count.
//
// Threads: as PartitionDriver. The destructor releases everything.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/partition/driver.h"

namespace gpulet::partition {

enum class CpuMechanism : std::uint8_t {
  automatic,  // cgroup where it can be had, else pacing
  cgroup,
  pacing,
};

// Of the node's memory, for each gpulet.
struct MemoryLimits {
  double factor = 1;  // of what its models were found to need
  std::uint64_t floor_bytes = 0;
  std::uint64_t device_bytes = 0;  // what all together may have; 0: not known
};

// The limit of a gpulet whose models need so many bytes (0: not known): the factor's, at least the
// floor, at most what the device has. 0: none.
[[nodiscard]] std::uint64_t memory_limit(const MemoryLimits& limits, std::uint64_t needed_bytes);

// Fails with invalid (no cores, or a core that this process may not use) or unavailable (a forced
// mechanism that cannot be had here; the message says why).
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_cpu_quota_driver(
    std::vector<std::uint32_t> cores, CpuMechanism mechanism = CpuMechanism::automatic,
    std::optional<MemoryLimits> memory = {});

// The cores that this process may run on, ascending.
[[nodiscard]] std::vector<std::uint32_t> usable_cores();

}  // namespace gpulet::partition
