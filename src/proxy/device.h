// The device of a proxy program's executor.
#pragma once

#include <cstdlib>
#include <string>

#include "gpulet/partition/driver.h"

namespace gpulet::proxy {

// From the environment of the share, which must be set and no longer change. "cpu" if it names
// none.
[[nodiscard]] inline std::string device() {
  const char* const text =
      std::getenv(partition::kDeviceVariable);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "cpu" : text;
}

}  // namespace gpulet::proxy
