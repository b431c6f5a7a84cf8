#include "partition/drivers/memory_cgroup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

namespace gpulet::partition {
namespace {

// The number that the text begins with; 0 where it does not.
std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The number in the line "name number"; 0 where there is none.
std::uint64_t number_after(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ') {
      return number_in(line.substr(name.size() + 1));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return 0;
}

OutOfMemory told(std::uint64_t killed, std::uint64_t reached_limit) {
  if (killed == 0) return OutOfMemory::no;
  return reached_limit > 0 ? OutOfMemory::at_its_limit : OutOfMemory::with_the_node;
}

bool is_there(const std::filesystem::path& file) { return ::access(file.c_str(), F_OK) == 0; }

}  // namespace

OutOfMemory out_of_memory_v2(std::string_view memory_events) {
  return told(number_after(memory_events, "oom_kill"), number_after(memory_events, "oom"));
}

OutOfMemory out_of_memory_v1(std::string_view oom_control, std::string_view most_used,
                             std::string_view limit) {
  // Memory is counted in lots, of which the last did not fit.
  constexpr std::uint64_t kLot = std::uint64_t{1} << 20U;
  const bool reached = number_in(limit) > 0 && number_in(most_used) + kLot >= number_in(limit);
  return told(number_after(oom_control, "oom_kill"), reached ? 1 : 0);
}

Result<MemoryCgroups> MemoryCgroups::open(const CpuCgroups& cpu) {
  constexpr GpuletId kTrial{0};  // no gpulet has this id
  if (cpu.place().version == CgroupVersion::v2 &&
      is_there(cpu.place().directory / "cgroup.subtree_control") &&
      cgroup_lists(cpu.place().directory / "cgroup.subtree_control", "memory")) {
    return MemoryCgroups(cpu.place());
  }
  std::string tried =
      "the memory controller is not enabled below " + cpu.place().directory.string();
  for (const auto& place : own_cgroup_places("memory")) {
    if (place.version != CgroupVersion::v1) continue;
    MemoryCgroups cgroups(place);
    const auto made = cgroups.create(kTrial, std::uint64_t{1} << 40U);
    static_cast<void>(cgroups.remove(kTrial));
    if (made.ok()) {
      remove_abandoned_cgroups(place);
      return cgroups;
    }
    tried += "; " + made.message();
  }
  return Status(StatusCode::unavailable, std::move(tried));
}

Status MemoryCgroups::create(GpuletId gpulet, std::uint64_t bytes) {
  const auto directory = directory_of(gpulet);
  const auto limit = std::to_string(bytes);
  limited_.insert(gpulet);
  if (place_.version == CgroupVersion::v2) {
    if (is_there(directory / "memory.swap.max")) {
      if (auto none = write_cgroup_file(directory / "memory.swap.max", "0"); !none.ok())
        return none;
    }
    return write_cgroup_file(directory / "memory.max", limit);
  }
  ::rmdir(directory.c_str());  // an empty one of a dead process that had this process's id
  if (::mkdir(directory.c_str(), 0755) != 0) {
    return {StatusCode::unavailable,
            "cannot make the cgroup " + directory.string() + ": " + std::strerror(errno)};
  }
  auto limited = write_cgroup_file(directory / "memory.limit_in_bytes", limit);
  // Memory and swap together: not below the limit of memory alone.
  const auto with_swap = directory / "memory.memsw.limit_in_bytes";
  if (limited.ok() && is_there(with_swap)) limited = write_cgroup_file(with_swap, limit);
  return limited;
}

Status MemoryCgroups::add(GpuletId gpulet, pid_t process) {
  if (place_.version == CgroupVersion::v2 || !limited_.contains(gpulet))
    return {};  // CpuCgroups has done so
  return write_cgroup_file(directory_of(gpulet) / "cgroup.procs", std::to_string(process));
}

OutOfMemory MemoryCgroups::out_of_memory(GpuletId gpulet) const {
  if (!limited_.contains(gpulet)) return OutOfMemory::no;
  const auto directory = directory_of(gpulet);
  if (place_.version == CgroupVersion::v2)
    return out_of_memory_v2(read_cgroup_file(directory / "memory.events"));
  const bool counts_swap = is_there(directory / "memory.memsw.limit_in_bytes");
  const std::string counter = counts_swap ? "memory.memsw." : "memory.";
  return out_of_memory_v1(read_cgroup_file(directory / "memory.oom_control"),
                          read_cgroup_file(directory / (counter + "max_usage_in_bytes")),
                          read_cgroup_file(directory / (counter + "limit_in_bytes")));
}

bool MemoryCgroups::remove(GpuletId gpulet) {
  const bool removed = place_.version == CgroupVersion::v2 || !limited_.contains(gpulet) ||
                       ::rmdir(directory_of(gpulet).c_str()) == 0 || errno != EBUSY;
  if (removed) limited_.erase(gpulet);
  return removed;
}

}  // namespace gpulet::partition
