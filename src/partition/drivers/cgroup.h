// The two versions of Linux control groups, as far as CPU shares need them.
//
// Finding out where this process's cgroups are is pure (text of /proc/self/mountinfo and
// /proc/self/cgroup in); CpuCgroups then makes, sets and removes cgroups by small file writes.
// Single thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::partition {

enum class CgroupVersion : std::uint8_t { v1 = 1, v2 = 2 };

// A directory that stands for the process's own cgroup.
struct CgroupPlace {
  CgroupVersion version = CgroupVersion::v2;
  std::filesystem::path directory;

  friend bool operator==(const CgroupPlace&, const CgroupPlace&) = default;
};

// Every mounted hierarchy that may hold the cpu controller, v2 first. A v2 place still has to be
// asked whether it has the controller: on machines with both versions mounted it belongs to one of
// them.
[[nodiscard]] std::vector<CgroupPlace> find_cgroup_places(std::string_view mountinfo,
                                                          std::string_view own_cgroups,
                                                          std::string_view controller = "cpu");
// Those of this process. Where it moved below its own cgroup (enable_below), the one that it left.
[[nodiscard]] std::vector<CgroupPlace> own_cgroup_places(std::string_view controller);

// The gpulet's cgroup below this process's own.
[[nodiscard]] std::filesystem::path gpulet_cgroup(const CgroupPlace& place, GpuletId gpulet);
// Removes what dead backends left there.
void remove_abandoned_cgroups(const CgroupPlace& place);

// Makes a controller available to cgroups below a place of version 2. Such a cgroup may hold no
// process itself, so this process moves into one below it, if it is alone there. Fails with
// unavailable; then nothing has changed.
[[nodiscard]] Status enable_below(const CgroupPlace& place, std::string_view controller);

// Whether the word stands in the file's first line, between blanks.
[[nodiscard]] bool cgroup_lists(const std::filesystem::path& file, std::string_view word);
[[nodiscard]] std::string read_cgroup_file(const std::filesystem::path& file);
[[nodiscard]] Status write_cgroup_file(const std::filesystem::path& file, const std::string& text);

// The backend's process id in "gpulet-<pid>-<gpulet>", or 0 where the name is none of ours.
[[nodiscard]] pid_t owner_of_cgroup(std::string_view name);

// CPU time per period. The kernel takes no quota below 1 ms, so a small quota gets a longer period.
struct CpuBandwidth {
  std::chrono::microseconds quota{};
  std::chrono::microseconds period{};

  friend bool operator==(const CpuBandwidth&, const CpuBandwidth&) = default;
};
// `cores`: how many cores' worth of time, for example 0.2. REQUIRES: cores > 0.
[[nodiscard]] CpuBandwidth bandwidth_of(double cores);

enum class CpuWeight : std::uint8_t { low, normal };

// The gpulets' cgroups below this process's own.
class CpuCgroups {
 public:
  // Makes and removes one cgroup to find out whether it may; then removes what dead backends left.
  // `with_memory`: makes the memory controller available as well, where that can be. Fails with
  // unavailable, naming each place that was tried and what it said.
  [[nodiscard]] static Result<CpuCgroups> open(bool with_memory = false);

  [[nodiscard]] CgroupVersion version() const { return place_.version; }
  [[nodiscard]] const CgroupPlace& place() const { return place_; }

  [[nodiscard]] Status create(GpuletId gpulet);
  [[nodiscard]] Status limit(GpuletId gpulet, CpuBandwidth bandwidth);
  [[nodiscard]] Status weigh(GpuletId gpulet, CpuWeight weight);
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process);
  // False where the kernel still sees a process in it: try again later.
  [[nodiscard]] bool remove(GpuletId gpulet);

 private:
  explicit CpuCgroups(CgroupPlace place) : place_(std::move(place)) {}

  [[nodiscard]] Status prepare() const;
  [[nodiscard]] Status make_directory(const std::filesystem::path& directory) const;
  [[nodiscard]] std::filesystem::path directory_of(GpuletId gpulet) const {
    return gpulet_cgroup(place_, gpulet);
  }

  CgroupPlace place_;
};

}  // namespace gpulet::partition
