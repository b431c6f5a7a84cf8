// GpuletAdoption: goes on with the gpulets that a backend brought, from an earlier run or from
// another frontend, and gives gpulets up that another frontend commands by now. Pure; one thread at
// a time.
#pragma once

#include <vector>

#include "serve/plans/routes_in_force.h"

namespace gpulet::serve {

class GpuletAdoption {
 public:
  // All outlive it.
  GpuletAdoption(const FrontendOptions& options, BackendRegistry& backends, const Fleet& fleet,
                 ModelRegistry& models, RoutesInForce& routes, Deployment& deployment,
                 Journal& journal)
      : options_(options),
        backends_(backends),
        fleet_(fleet),
        models_(models),
        routes_(routes),
        deployment_(deployment),
        journal_(journal) {}

  // Adds the gpulets that a backend brought, and serves with those that fit, if no plan was begun
  // yet.
  void take_over(BackendId backend, const std::vector<GpuletReport>& gpulets, Time now,
                 FrontendEffects& effects);
  // The backend's gpulets do not serve this frontend any more.
  void give_up(BackendId backend, Time now, FrontendEffects& effects);

 private:
  void adopt(BackendId backend, Time now, FrontendEffects& effects);
  [[nodiscard]] bool adoptable(const GpuletRecord& gpulet) const;

  const FrontendOptions& options_;
  BackendRegistry& backends_;
  const Fleet& fleet_;
  ModelRegistry& models_;
  RoutesInForce& routes_;
  Deployment& deployment_;
  Journal& journal_;
};

}  // namespace gpulet::serve
