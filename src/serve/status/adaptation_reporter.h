// AdaptationReporter: what the frontend learned of the models and devices that serve, for the
// status. It changes nothing. Pure; one thread at a time.
#pragma once

#include <optional>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/adapt/cpu_control.h"
#include "serve/adapt/estimates.h"
#include "serve/adapt/feedback.h"

namespace gpulet::serve {

class AdaptationReporter {
 public:
  // All outlive it.
  AdaptationReporter(const CpuControl& control, const Feedback& feedback,
                     const Estimates& estimates)
      : control_(control), feedback_(feedback), estimates_(estimates) {}

  // `leads`: this frontend plans, and so estimates.
  void add_to(FrontendStatus& status, bool leads) const {
    status.controlled_nodes = control_.nodes();
    status.corrections = feedback_.corrections();
    if (leads) status.estimates = estimates_.status();
  }
  void add_to(ModelStatus& status) const {
    status.control = control_.status_of(status.name);
    status.correction = feedback_.correction_of(status.name);
    status.estimated = estimates_.estimates(status.name);
    status.disturbs = feedback_.why_disturbs(status.name);
    status.extra_headroom = feedback_.extra_headroom_of(status.name);
  }
  [[nodiscard]] std::optional<control::Cores> cores_of(GpuletId id) const {
    return control_.cores_of(id);
  }
  // As DeviceStatus::slowness.
  [[nodiscard]] double slowness_of(const schedule::DeviceKey& device) const {
    return feedback_.slowness_of(device);
  }

 private:
  const CpuControl& control_;
  const Feedback& feedback_;
  const Estimates& estimates_;
};

}  // namespace gpulet::serve
