// StatusInSteps: a FrontendStatus that is taken a part at a time (FrontendCore::take), so that the
// core's thread is free between two parts: thousands of models and devices take longer than one
// request should wait. Each part is as it was when it was taken; what comes meanwhile may be
// missing. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/serve/frontend_status.h"

namespace gpulet::serve {

class StatusInSteps {
 public:
  explicit StatusInSteps(Time now) : now_(now) {}

  // REQUIRES: FrontendCore::take returned true. On any thread.
  [[nodiscard]] FrontendStatus finish() &&;

 private:
  friend class FrontendCore;
  enum class Stage : std::uint8_t { whole, backends, gpulets, models, applications, done };

  Time now_;
  Stage stage_ = Stage::whole;
  FrontendStatus status_;
  std::map<schedule::DeviceKey, DeviceStatus> devices_;
  // The last of its stage that was taken.
  std::optional<BackendId> backend_{};
  std::optional<GpuletId> gpulet_{};
  std::string name_;
};

}  // namespace gpulet::serve
