// Slow devices: those on which batches take longer than those of the same models on other devices
// of the type, for example because a device is throttled or shared (docs/scheduling.md,
// "Feedback"). A plan treats a slow device as one of a type of its own, so that the others keep
// their capacity. Pure; any thread.
#pragma once

#include <tuple>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::serve {

// A model at a size of a device.
struct ObservedPlace {
  std::string model;
  std::string device_type;
  Share size;
  schedule::DeviceKey device;

  friend auto operator<=>(const ObservedPlace& a, const ObservedPlace& b) {
    return std::tie(a.device_type, a.model, a.size, a.device) <=>
           std::tie(b.device_type, b.model, b.size, b.device);
  }
  friend bool operator==(const ObservedPlace&, const ObservedPlace&) = default;
};

// The time of its batches divided by that of the profile.
struct ObservedFactor {
  ObservedPlace place;
  double factor = 1;
};

using planning::SlowDevices;

// 1 for a device that is not slow.
[[nodiscard]] double slowness_of(const SlowDevices& slow, const schedule::DeviceKey& device);

// A device is slow if every model that can be compared takes at least kLeastSlowness times as long
// there as on the other devices of the type, at the same size where possible. `before`: the result
// of the previous call. A device in it stays slow down to a lower bound, and while no model can be
// compared. `factors` are sorted by place.
inline constexpr double kLeastSlowness = 1.15;
[[nodiscard]] SlowDevices find_slow_devices(const std::vector<ObservedFactor>& factors,
                                            const SlowDevices& before);

}  // namespace gpulet::serve
