// Lane: one gpulet's executor on a device, alone in its process or beside others that share the
// models of a shelf; and the device of those. Used by one thread, but for the batches that it
// begins. No LibTorch header is needed to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/executor/executor.h"
#include "gpulet/executor/shared_device.h"
#include "gpulet/gpu/green_lanes.h"

namespace gpulet::executor {

class ModelShelf;

// What a lane among several has.
struct SharedParts {
  std::shared_ptr<ModelShelf> shelf;
  std::optional<gpu::GreenLane> green;  // none: the whole device, as on the CPU
  std::uint32_t device_sms = 0;
};

// `device` as LibTorch writes it. Throws std::invalid_argument on any other text. The device itself
// is not looked for before found_share() or load().
[[nodiscard]] std::unique_ptr<Executor> make_lane(const std::string& device,
                                                  std::optional<SharedParts> shared = std::nullopt);

// What make_torch_shared_device() makes.
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_device_of_lanes(const std::string& device);

}  // namespace gpulet::executor
