// GpuletReporter: the backends, devices and gpulets, for the status. It changes nothing else. Pure;
// one thread at a time.
#pragma once

#include <unordered_map>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/fleet.h"
#include "serve/dispatch/routed_gpulets.h"
#include "serve/status/adaptation_reporter.h"
#include "serve/values/reported_figures.h"

namespace gpulet::serve {

class GpuletReporter {
 public:
  // All outlive it.
  GpuletReporter(const RoutedGpulets& gpulets, const ReportedFigures& figures, const Fleet& fleet,
                 const Deployment& deployment, const AdaptationReporter& adaptation)
      : gpulets_(gpulets),
        figures_(figures),
        fleet_(fleet),
        deployment_(deployment),
        adaptation_(adaptation) {}

  // Measures how busy the gpulets were, `since_last` after the last call.
  void tick(Duration since_last);

  [[nodiscard]] const BackendRegistry& backends() const { return fleet_.backends(); }
  [[nodiscard]] GpuletStatus status_of(GpuletId id, const GpuletRecord& gpulet, Time now) const;
  // A device that the backend offers, without its gpulets.
  [[nodiscard]] DeviceStatus status_of(const BackendRecord& backend,
                                       const DeviceOffer& offer) const;
  void add_to_device(DeviceStatus& device, GpuletId id, const GpuletRecord& gpulet) const;

 private:
  // Of all owners.
  [[nodiscard]] GpuletStatistics statistics_of(GpuletId id) const;
  // The fraction of its device that the gpulet has now.
  [[nodiscard]] double fraction_of_device(GpuletId id, const GpuletRecord& gpulet) const;

  const RoutedGpulets& gpulets_;
  const ReportedFigures& figures_;
  const Fleet& fleet_;
  const Deployment& deployment_;
  const AdaptationReporter& adaptation_;

  struct Busy {
    double fraction = 0;  // of the last tick
    Duration executed_at_tick{};
  };
  std::unordered_map<GpuletId, Busy> busy_;
};

}  // namespace gpulet::serve
