// Which cores a process runs on. Linux; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::partition {

// Binds every thread that the process has to these cores; later threads inherit it. A process that
// is gone already is no failure: its exit is told elsewhere.
[[nodiscard]] Status bind_to_cores(pid_t process, const std::vector<std::uint32_t>& cores);

}  // namespace gpulet::partition
