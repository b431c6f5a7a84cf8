#include <c10/core/Device.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/lane.h"
#include "executor/torch/shelf.h"
#include "executor/torch/tensors.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/green_lanes.h"

namespace gpulet::executor {
namespace {

class DeviceOfLanes final : public SharedDevice {
 public:
  DeviceOfLanes(std::string device, std::optional<gpu::GreenLanes> lanes)
      : device_(std::move(device)), lanes_(std::move(lanes)) {}

  [[nodiscard]] Result<std::unique_ptr<Executor>> add_lane(Share share) override {
    SharedParts parts{.shelf = shelf_, .green = std::nullopt};
    if (lanes_) {
      auto green = lanes_->add(share);
      if (!green.ok()) return Status(StatusCode::unavailable, green.status().message());
      parts.green = std::move(green).value();
      parts.device_sms = lanes_->sizes().sms;
    }
    try {
      return make_lane(device_, std::move(parts));
    } catch (const std::exception& error) {
      return Status(StatusCode::unavailable, error.what());
    }
  }

 private:
  const std::string device_;
  const std::shared_ptr<ModelShelf> shelf_ = std::make_shared<ModelShelf>();
  std::optional<gpu::GreenLanes> lanes_;  // none: nobody divides the device
};

Result<gpu::GreenLanes> divided(const c10::Device& device) {
  if (!built_with_cuda()) {
    return Status(StatusCode::unavailable,
                  "this gpulet-proxy was built with a LibTorch that has no CUDA; build it with one "
                  "that has (CMAKE_PREFIX_PATH), or serve on the CPU");
  }
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return driver.status();
  return gpu::GreenLanes::make(driver.value(),
                               static_cast<std::uint32_t>(device.has_index() ? device.index() : 0));
}

}  // namespace

Result<std::unique_ptr<SharedDevice>> make_device_of_lanes(const std::string& text) {
  const std::string where = "device '" + text + "'";
  try {
    const c10::Device device(text);
    std::optional<gpu::GreenLanes> lanes;
    if (device.is_cuda()) {
      auto made = divided(device);
      if (!made.ok()) return made.status().within(where);
      lanes = std::move(made).value();
    }
    return std::unique_ptr<SharedDevice>(std::make_unique<DeviceOfLanes>(text, std::move(lanes)));
  } catch (const std::exception& error) {
    return Status(StatusCode::invalid, own_words(error)).within(where);
  }
}

}  // namespace gpulet::executor
