// Mixtures: what serves between two plans. Whenever gpulets are ready, those that may serve do, and
// what they replace is retired (schedule/mixture.h). Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "serve/plans/routes_in_force.h"

namespace gpulet::serve {

class Mixtures {
 public:
  // All outlive it.
  Mixtures(BackendRegistry& backends, const Fleet& fleet, const ModelTable& models,
           RoutesInForce& routes, Deployment& deployment)
      : backends_(backends),
        fleet_(fleet),
        models_(models),
        routes_(routes),
        deployment_(deployment) {}

  // A rollout begins: the next mixture need not wait.
  void begin(Time now) { next_ = now; }
  // Puts the next mixture into force. Returns how many gpulets began to serve their part.
  std::size_t mix(Time now, FrontendEffects& effects);
  // The same, where gpulets changed and the last mixture is some time ago.
  std::size_t mix_if_due(Time now, FrontendEffects& effects);
  // When mix_if_due() is due without an event.
  [[nodiscard]] Time next_wake() const { return deployment_.gpulets_changed() ? next_ : kNever; }

 private:
  // Of these, those that can serve their part now.
  [[nodiscard]] std::set<GpuletId> ready_of(const schedule::WantedParts& wanted) const;
  // Models of which some gpulet brings the next version.
  [[nodiscard]] std::set<std::string> with_next_version(const schedule::WantedParts& wanted) const;
  // The gpulet serves its part of the plan from now on. REQUIRES: it is registered.
  void assign(GpuletId id, const schedule::PlannedGpulet& planned, FrontendEffects& effects);

  BackendRegistry& backends_;
  const Fleet& fleet_;
  const ModelTable& models_;
  RoutesInForce& routes_;
  Deployment& deployment_;
  Time next_{};  // mixtures of many gpulets take time to compute
};

}  // namespace gpulet::serve
