// What a process finds of its device, as the device itself says and not as it was asked for. Plain
// values; any thread.
#pragma once

#include <cstdint>

namespace gpulet::partition {

struct FoundShare {
  bool held = false;             // by a mechanism outside this process: it cannot have more
  std::uint32_t sms = 0;         // that it may use; 0: the device does not tell
  std::uint32_t device_sms = 0;  // of the whole device; 0: not known

  friend bool operator==(const FoundShare&, const FoundShare&) = default;
};

enum class DeviceHealth : std::uint8_t {
  works = 0,
  not_ready = 1,  // it takes no processes now, and may take a new one later
  lost = 2,       // a fatal fault: nothing that this process does on it will succeed
};

}  // namespace gpulet::partition
