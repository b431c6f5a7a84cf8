// GpuletStarter: tells backends to create the gpulets of a plan. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serve/deploy/deployment.h"
#include "serve/deploy/fleet.h"
#include "serve/deploy/plan_requests.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

class GpuletStarter {
 public:
  // All outlive it.
  GpuletStarter(BackendRegistry& backends, const Fleet& fleet, ModelTable& models,
                Deployment& deployment, Journal& journal)
      : backends_(backends),
        fleet_(fleet),
        models_(models),
        deployment_(deployment),
        journal_(journal) {}

  // Creates some of the new gpulets of the rollout. REQUIRES: there is one.
  void start_some(Time now, FrontendEffects& effects);
  // Creates that gpulet of the rollout. REQUIRES: there is one, and it has the gpulet.
  void start(GpuletId id, Time now, FrontendEffects& effects);

  // Some process has loaded and run each of its models before.
  [[nodiscard]] bool proven(const schedule::PlannedGpulet& planned) const;
  // No process has loaded and run the wanted version of the model.
  [[nodiscard]] bool unproven(const std::string& model) const;
  // A gpulet that takes batches has the model.
  [[nodiscard]] bool is_served(const std::string& model) const {
    return models_.has_ready_slot(model);
  }
  // Since when the gpulet is being prepared. Empty: it is not.
  [[nodiscard]] std::optional<Time> preparing_since(GpuletId id) const;

 private:
  [[nodiscard]] std::uint32_t batch_to_probe(const schedule::DeviceKey& device,
                                             const std::string& model,
                                             std::uint32_t max_batch) const;
  // The memory of its models, as profiled; 0 if one of them was not measured.
  [[nodiscard]] double memory_needed_mb(const schedule::PlannedGpulet& planned) const;

  BackendRegistry& backends_;
  const Fleet& fleet_;
  ModelTable& models_;
  Deployment& deployment_;
  Journal& journal_;
};

}  // namespace gpulet::serve
