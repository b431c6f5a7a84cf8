#include "partition/drivers/affinity.h"

#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "gpulet/partition/drivers/cpu_quota.h"

namespace gpulet::partition {

Status bind_to_cores(pid_t process, const std::vector<std::uint32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const auto core : cores) CPU_SET(core, &set);

  std::error_code error;
  const auto tasks = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto thread = static_cast<pid_t>(std::atol(entry->path().filename().c_str()));
    if (sched_setaffinity(thread, sizeof set, &set) != 0 && errno != ESRCH) {
      return {StatusCode::unavailable, "cannot bind process " + std::to_string(process) +
                                           " to its device's cores: " + std::strerror(errno)};
    }
  }
  // Gone, or hidden: a process that may not be looked into is, by hidepid.
  if (error && ::kill(process, 0) == 0) {
    return {StatusCode::unavailable,
            "cannot see the threads of process " + std::to_string(process) + " in " +
                tasks.string() + ": mount /proc without hidepid (ProtectProc=default in a unit)"};
  }
  return {};
}

std::vector<std::uint32_t> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<std::uint32_t> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace gpulet::partition
