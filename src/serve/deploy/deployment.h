// Deployment: the plan in force and the ones that come next. A plan that is decided comes into
// force by a rollout, or by several, its stages, where MIG divides devices (docs/architecture.md,
// "The path of a plan"). Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/values/frontend_events.h"
#include "serve/deploy/backend_registry.h"
#include "serve/deploy/gpulet_lifecycle.h"
#include "serve/deploy/rollout_progress.h"
#include "serve/deploy/serving_plan.h"

namespace gpulet::serve {

// Why plans that were decided do not come into force.
enum class Abandoned : std::uint8_t {
  // ---- the stages that are left: each builds on the whole of the one before it
  replanned,       // another plan is being made
  node_lost,       // the gpulets that they retire may be needed now
  device_lost,     // the same
  gpulet_lost,     // the same
  led_elsewhere,   // the same: another frontend commands some gpulets
  incomplete,      // others stand in for gpulets of the last stage, which the next one would retire
  still_occupied,  // gpulets did not leave the instances that the next stage needs
  // ---- the stages and the rollout
  gpulet_failed,      // the plan would have it created again
  version_withdrawn,  // the plan brings a version that is not wanted any more
  leads_no_more,
};

class Deployment {
 public:
  // `run`: as FrontendOptions::run.
  Deployment(BackendRegistry& backends, std::uint64_t run)
      : backends_(backends), gpulets_(backends, run) {}

  [[nodiscard]] ServingPlan& in_force() { return in_force_; }
  [[nodiscard]] const ServingPlan& in_force() const { return in_force_; }
  [[nodiscard]] GpuletLifecycle& gpulets() { return gpulets_; }

  // ---- the mixture

  // What is to serve: the gpulets of the rollout or, without one, of the plan in force. Valid until
  // these change.
  [[nodiscard]] schedule::WantedParts wanted() const;
  // Models of gpulets that wanted() lacks because they ended.
  [[nodiscard]] const std::set<std::string>& lost_models() const {
    return rollout_ ? rollout_->lost_models() : in_force_.lost_models();
  }
  // The rates that stay served on the way to wanted().
  [[nodiscard]] const std::map<std::string, double>& least_rates() const { return least_rates_; }

  // ---- the plans that come next

  // The plans to roll out after the present rollout; the last one is the one decided on.
  [[nodiscard]] const std::deque<schedule::Plan>& stages() const { return stages_; }
  [[nodiscard]] bool rolls_out() const { return rollout_.has_value() || !stages_.empty(); }
  // A plan was decided, with these stages. Replaces those that are left.
  void begin(std::deque<schedule::Plan> stages) { stages_ = std::move(stages); }
  // REQUIRES: there is one.
  [[nodiscard]] schedule::Plan take_stage();
  // Plans that were decided are void. `why` tells how far.
  void abandon(Abandoned why);

  // ---- the rollout

  [[nodiscard]] const std::optional<Rollout>& rollout() const { return rollout_; }
  // REQUIRES: there is one.
  [[nodiscard]] Rollout& active_rollout() { return *rollout_; }
  [[nodiscard]] bool in_rollout(GpuletId id) const {
    return rollout_ && rollout_->parts().contains(id);
  }
  // As Rollout::Rollout(). `outages`: those that it needs; their `until` is an index into the plan.
  Rollout& begin_rollout(schedule::Plan plan, schedule::Steps steps,
                         const std::set<schedule::DeviceKey>& in_place,
                         std::vector<PlannedOutage> outages, Time now, Duration patience);
  // The plan of the rollout is in force, as far as it serves. The rollout still tells what it
  // retires. Returns whether the whole plan serves.
  [[nodiscard]] bool put_in_force();
  // REQUIRES: put_in_force() returned `whole`.
  void end_rollout(bool whole);
  // Stops the rollout and retires its new gpulets. REQUIRES: there is one.
  void cancel_rollout(FrontendEffects& effects);
  // Forgets the plan in force and the next one; their gpulets stay as they are.
  void start_over();

  // ---- gpulets

  // The gpulet takes batches.
  void gpulet_ready(GpuletId id) {
    if (rollout_) rollout_->ready(id);
  }
  // The gpulet is gone. Returns whether a plan needed it.
  bool lose(GpuletId id);
  // What runs on the device does not serve until it is back.
  void lose_device(const schedule::DeviceKey& device);
  // Some gpulet's state changed, and no mixture has followed that yet.
  void set_gpulets_changed(bool changed = true) { gpulets_changed_ = changed; }
  [[nodiscard]] bool gpulets_changed() const { return gpulets_changed_; }

 private:
  BackendRegistry& backends_;
  GpuletLifecycle gpulets_;
  ServingPlan in_force_;
  std::map<std::string, double> least_rates_;
  std::optional<Rollout> rollout_;
  std::deque<schedule::Plan> stages_;
  bool gpulets_changed_ = false;
};

}  // namespace gpulet::serve
