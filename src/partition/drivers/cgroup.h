// Linux control groups, versions 1 and 2: CPU shares and memory limits of gpulets.
//
// The parsers of /proc/self/mountinfo, /proc/self/cgroup and memory events are pure. CpuCgroups and
// MemoryCgroups create, change and remove cgroups by small file writes. Single thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/partition/driver.h"

namespace gpulet::partition {

enum class CgroupVersion : std::uint8_t { v1 = 1, v2 = 2 };

// The directory of this process's own cgroup in one hierarchy.
struct CgroupPlace {
  CgroupVersion version = CgroupVersion::v2;
  std::filesystem::path directory;

  friend bool operator==(const CgroupPlace&, const CgroupPlace&) = default;
};

// All mounted hierarchies that may have the controller, v2 first. Check whether a v2 hierarchy
// really has it: where both versions are mounted, a controller belongs to only one of them.
[[nodiscard]] std::vector<CgroupPlace> find_cgroup_places(std::string_view mountinfo,
                                                          std::string_view own_cgroups,
                                                          std::string_view controller = "cpu");
// find_cgroup_places() for this process. After enable_below(), the cgroup that it moved out of.
[[nodiscard]] std::vector<CgroupPlace> own_cgroup_places(std::string_view controller);

// Enables a controller for the cgroups below a place of version 2. The place must then contain no
// process, so this process moves into a new cgroup below it, if it is the only one. Fails with
// unavailable and then changes nothing.
[[nodiscard]] Status enable_below(const CgroupPlace& place, std::string_view controller);

// Whether the first line of the file contains the word.
[[nodiscard]] bool cgroup_lists(const std::filesystem::path& file, std::string_view word);
[[nodiscard]] std::string read_cgroup_file(const std::filesystem::path& file);
[[nodiscard]] Status write_cgroup_file(const std::filesystem::path& file, const std::string& text);

// The backend's process id in "gpulet-<pid>-<gpulet>"; 0 for other names.
[[nodiscard]] pid_t owner_of_cgroup(std::string_view name);

// CPU time per period. The kernel accepts no quota below 1 ms, so a small share has a longer
// period.
struct CpuBandwidth {
  std::chrono::microseconds quota{};
  std::chrono::microseconds period{};

  friend bool operator==(const CpuBandwidth&, const CpuBandwidth&) = default;
};
// `cores`: for example 0.2. REQUIRES: cores > 0.
[[nodiscard]] CpuBandwidth bandwidth_of(double cores);

enum class CpuWeight : std::uint8_t { low, normal };

// The gpulets' cgroups, below this process's own.
class CpuCgroups {
 public:
  // Creates and removes a cgroup as a trial, then removes the cgroups of dead backends. With
  // `with_memory`, also enables the memory controller where possible. Fails with unavailable and
  // the reason for each place that it tried.
  [[nodiscard]] static Result<CpuCgroups> open(bool with_memory = false);

  [[nodiscard]] CgroupVersion version() const { return place_.version; }
  [[nodiscard]] const CgroupPlace& place() const { return place_; }

  [[nodiscard]] Status create(GpuletId gpulet);
  [[nodiscard]] Status limit(GpuletId gpulet, CpuBandwidth bandwidth);
  [[nodiscard]] Status weigh(GpuletId gpulet, CpuWeight weight);
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process);
  // False while the kernel still counts a process in it: retry later.
  [[nodiscard]] bool remove(GpuletId gpulet);

 private:
  explicit CpuCgroups(CgroupPlace place) : place_(std::move(place)) {}

  [[nodiscard]] Status prepare() const;
  [[nodiscard]] Status make_directory(const std::filesystem::path& directory) const;

  CgroupPlace place_;
};

// Parses memory.events (version 2).
[[nodiscard]] OutOfMemory out_of_memory_v2(std::string_view memory_events);
// Parses memory.oom_control, max_usage_in_bytes and limit_in_bytes (version 1). failcnt is useless:
// recent kernels leave it at 0.
[[nodiscard]] OutOfMemory out_of_memory_v1(std::string_view oom_control, std::string_view most_used,
                                           std::string_view limit);

// Memory limits. Version 2 uses the cgroup that CpuCgroups created; version 1 uses a cgroup of the
// same name in the memory hierarchy. Swap counts towards the limit where the kernel accounts for
// it.
class MemoryCgroups {
 public:
  // `cpu`: the CPU cgroups of the same gpulets. Fails with unavailable and the reason.
  [[nodiscard]] static Result<MemoryCgroups> open(const CpuCgroups& cpu);

  // Limits the gpulet's memory. REQUIRES: its CPU cgroup was created. The methods below do nothing
  // for a gpulet without a limit.
  [[nodiscard]] Status create(GpuletId gpulet, std::uint64_t bytes);
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process);
  // Whether the kernel killed one of its processes for lack of memory.
  [[nodiscard]] OutOfMemory out_of_memory(GpuletId gpulet) const;
  // False while the kernel still counts a process in it: retry later.
  [[nodiscard]] bool remove(GpuletId gpulet);

 private:
  explicit MemoryCgroups(CgroupPlace place) : place_(std::move(place)) {}

  CgroupPlace place_;
  std::set<GpuletId> limited_;
};

}  // namespace gpulet::partition
