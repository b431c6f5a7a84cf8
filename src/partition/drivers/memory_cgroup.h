// Memory limits of gpulets by control groups, of either version, and what became of a process that
// reached one.
//
// Version 2: the gpulet's cgroup is the one that CpuCgroups made; version 1: one of the same name
// in the hierarchy of the memory controller. Swap is not a way around the limit where the kernel
// counts it. Single thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/partition/driver.h"
#include "partition/drivers/cgroup.h"

namespace gpulet::partition {

// What the kernel counted, in the text of memory.events (version 2).
[[nodiscard]] OutOfMemory out_of_memory_v2(std::string_view memory_events);
// The same in the texts of memory.oom_control, max_usage_in_bytes and limit_in_bytes (version 1).
// The count of failures says nothing: recent kernels leave it at 0.
[[nodiscard]] OutOfMemory out_of_memory_v1(std::string_view oom_control, std::string_view most_used,
                                           std::string_view limit);

class MemoryCgroups {
 public:
  // `cpu`: those of the gpulets that will be limited here. Fails with unavailable, saying why.
  [[nodiscard]] static Result<MemoryCgroups> open(const CpuCgroups& cpu);

  // Limits the gpulet to so many bytes. REQUIRES: its CPU cgroup was created. What follows does
  // nothing for a gpulet without a limit.
  [[nodiscard]] Status create(GpuletId gpulet, std::uint64_t bytes);
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process);
  // Whether the kernel has ended one of its processes for want of memory.
  [[nodiscard]] OutOfMemory out_of_memory(GpuletId gpulet) const;
  // False where the kernel still sees a process in it: try again later.
  [[nodiscard]] bool remove(GpuletId gpulet);

 private:
  explicit MemoryCgroups(CgroupPlace place) : place_(std::move(place)) {}
  [[nodiscard]] std::filesystem::path directory_of(GpuletId gpulet) const {
    return gpulet_cgroup(place_, gpulet);
  }

  CgroupPlace place_;
  std::set<GpuletId> limited_;
};

}  // namespace gpulet::partition
