// GpuletLifecycle: the gpulets that this frontend creates: their ids, how long they take until they
// are ready, and their end. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "serve/deploy/backend_registry.h"

namespace gpulet::serve {

class GpuletLifecycle {
 public:
  // `run`: as FrontendOptions::run.
  GpuletLifecycle(BackendRegistry& backends, std::uint64_t run);

  // ---- ids, which ascend

  [[nodiscard]] GpuletId take_id() { return GpuletId{next_++}; }
  [[nodiscard]] GpuletId next_id() const { return GpuletId{next_}; }
  [[nodiscard]] RunIds run_ids() const;

  // ---- start

  // A new gpulet was ready after so long.
  void started_within(Duration took);
  // It had loaded these models.
  void loaded(const std::vector<schedule::RunningModel>& models, Duration took);
  // How long such a gpulet will take until it is ready, from earlier ones of its models. Empty: one
  // of them was never loaded.
  [[nodiscard]] std::optional<Duration> expected_load(const schedule::PlannedGpulet& planned) const;
  // How long a plan waits for gpulets that are known to become ready: somewhat longer than they
  // lately took, at least `least`.
  [[nodiscard]] Duration patience(Duration least) const;

  // ---- end

  // Tells the gpulet's backend to retire it, once, if this frontend commands the backend.
  void retire(GpuletId id, FrontendEffects& effects);

 private:
  BackendRegistry& backends_;
  std::uint64_t first_;
  std::uint64_t next_;
  Duration usual_start_{};
  std::unordered_map<std::string, Duration> loads_;  // of each model, the last one
};

}  // namespace gpulet::serve
