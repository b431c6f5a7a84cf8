// The handles of the fake NVML. Internal to its sources.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "gpu/nvml_abi.h"
#include "tests/support/gpu/fake_control.h"

namespace gpulet::support {

// The flag for handles of MIG devices; the other bits are those of the instance.
inline constexpr std::uintptr_t kFakeMigDevice = std::uintptr_t{1} << 41U;

inline bool is_mig_device(gpu::nvml_abi::Device device) {
  return (reinterpret_cast<std::uintptr_t>(device) & kFakeMigDevice) != 0;
}

// A device handle is its number plus one, so that none is a null pointer.
inline gpu::nvml_abi::Device handle_of(std::size_t number) {
  return reinterpret_cast<gpu::nvml_abi::Device>(number + 1);  // NOLINT(performance-no-int-to-ptr)
}
inline std::uint32_t number_of_device(gpu::nvml_abi::Device device) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(device) - 1);
}

// Calls `answer` with the device, unless it has an error.
template <typename Answer>
gpu::nvml_abi::Return of_device(gpu::nvml_abi::Device device, Answer answer) {
  const FakeMachine machine = read_fake_machine();
  const std::size_t number = reinterpret_cast<std::uintptr_t>(device) - 1;
  if (number >= machine.gpus.size()) return gpu::nvml_abi::kInvalidArgument;
  const FakeSettings& gpu = machine.gpus[number];
  if (const auto error = gpu.number("error", gpu::nvml_abi::kSuccess);
      error != gpu::nvml_abi::kSuccess)
    return static_cast<gpu::nvml_abi::Return>(error);
  return answer(gpu);
}

inline gpu::nvml_abi::Return copy_text(const std::string& text, char* buffer,
                                       gpu::nvml_abi::Count size) {
  constexpr gpu::nvml_abi::Return kInsufficientSize = 7;
  if (text.size() >= size) return kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return gpu::nvml_abi::kSuccess;
}

// The UUID of a MIG device.
gpu::nvml_abi::Return copy_mig_uuid(gpu::nvml_abi::Device device, char* buffer,
                                    gpu::nvml_abi::Count size);

}  // namespace gpulet::support
