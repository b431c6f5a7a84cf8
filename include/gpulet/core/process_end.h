// How a process ended, as waitpid tells it. Plain value; any thread.
#pragma once

#include <cstdint>

namespace gpulet {

struct ProcessEnd {
  std::uint8_t signal = 0;       // that ended it; 0: it exited
  std::uint8_t exit_status = 0;  // where it exited

  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

}  // namespace gpulet
