// Feedback: compares what serves with what was planned, and acts on it (docs/scheduling.md,
// "Feedback").
//
// - Batches that take longer or shorter than their profile says correct the latencies of later
//   plans; a correction that differs from the one planned with requests a plan.
// - A model some of whose batches block the others in its gpulet gets gpulets of its own at once.
// - A model that misses its target without a known cause is planned with more headroom.
//
// With FrontendOptions::feedback off, or with keep_plan, it only observes. Pure; one thread at a
// time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/profile/estimate.h"
#include "serve/adapt/corrections.h"
#include "serve/adapt/model_loads.h"
#include "serve/adapt/reactions.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/fleet.h"
#include "serve/deploy/plan_requests.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

class Feedback {
 public:
  // All outlive it.
  Feedback(const FrontendOptions& options, const ModelLoads& loads, const Fleet& fleet,
           const ModelTable& models, const Deployment& deployment, Journal& journal, Time now);

  // ---- observations

  // The gpulets that serve changed.
  void follow_routes(Time now);
  void ran(const BatchRun& batch, Time now);
  // Requests plans.
  void tick(Time now, FrontendEffects& effects);

  // ---- planning

  // A plan is about to be made for these demands: raises their rates and sets `alone`. Returns the
  // models that may share a gpulet all the same where no device is free for them.
  [[nodiscard]] std::set<std::string> adjust(std::vector<schedule::ModelDemand>& demands);
  // The corrections of the last adjust(). Never null.
  [[nodiscard]] const std::shared_ptr<const profile::Corrections>& planned() const {
    return planned_;
  }
  // The slow devices of the last adjust(). planned() leaves their slowness out.
  [[nodiscard]] const SlowDevices& planned_slow_devices() const { return planned_slow_devices_; }

  // ---- status

  [[nodiscard]] std::vector<CorrectionStatus> corrections() const;
  // As ModelStatus::correction, disturbs, extra_headroom.
  [[nodiscard]] double correction_of(const std::string& model) const;
  // As DeviceStatus::slowness.
  [[nodiscard]] double slowness_of(const schedule::DeviceKey& device) const {
    return serve::slowness_of(estimator_.slow_devices(), device);
  }
  [[nodiscard]] std::string why_disturbs(const std::string& model) const {
    return disturbances_.why(model);
  }
  [[nodiscard]] double extra_headroom_of(const std::string& model) const;

 private:
  // A model slot that serves.
  struct Slot {
    ModelIndex index = 0;
    ObservedPlace place;
    std::vector<Duration> alone;   // [n-1]: a batch of n, as profiled
    std::vector<Duration> beside;  // with the planned slowdown, beside its instance's processes
    double planned = 1;            // the correction
    // A batch that takes longer than predicted by more makes other models late; 0: unknown.
    Duration slack{};
    PaceEstimate* estimate = nullptr;  // null: to be looked up
  };
  // Bounds the frequency of plans for one model.
  struct Backoff {
    Time next{};
    Duration wait{};
  };

  [[nodiscard]] std::vector<Slot> slots_of(GpuletId id, const schedule::PlannedGpulet& planned);
  // Where the profiles in force changed, models with other latencies begin anew.
  void follow_profiles(Time now);
  [[nodiscard]] bool acts() const { return options_.feedback && !options_.keep_plan; }
  // The factor of the place in the last plan.
  [[nodiscard]] double planned_factor(const ObservedPlace& place) const;
  // Notes which devices became slow, or are as fast as the others again.
  void note_slow_devices(Time now, FrontendEffects& effects);
  void look_for_disturbances(Time now, FrontendEffects& effects);
  void look_for_slow_models(Time now, FrontendEffects& effects);
  void look_for_fast_models(Time now, FrontendEffects& effects);
  void look_for_late_models(Time now, FrontendEffects& effects);
  // Some model's extra headroom, or the freedom to share, could be given back.
  [[nodiscard]] bool plans_too_much() const;
  // What corrections of the place refer to, in words.
  [[nodiscard]] std::string_view basis_of(const ObservedPlace& place) const;
  [[nodiscard]] bool may_plan(const std::string& model, Time now);
  // Nothing else explains the model's violations, and there are devices for a larger demand.
  [[nodiscard]] bool lacks_headroom(const std::string& name, const NamedModel& known,
                                    Time now) const;
  [[nodiscard]] bool has_room() const;

  const FrontendOptions& options_;
  const ModelLoads& loads_;
  const Fleet& fleet_;
  const ModelTable& models_;
  const Deployment& deployment_;
  Journal& journal_;

  std::shared_ptr<const profile::ProfileSet> profiles_;  // that the slots refer to
  CorrectionEstimator estimator_;
  Disturbances disturbances_;
  std::map<std::string, ExtraHeadroom, std::less<>> headroom_;
  std::unordered_map<GpuletId, std::vector<Slot>> slots_;
  // Index of its slots, by model.
  std::map<std::string, std::vector<std::pair<GpuletId, std::size_t>>, std::less<>> of_model_;
  std::map<std::string, Duration, std::less<>> slack_;  // of disturbing models, when they shared
  std::map<std::string, Backoff, std::less<>> backoff_;
  std::shared_ptr<const profile::Corrections> planned_;
  SlowDevices planned_slow_devices_;
  SlowDevices noted_slow_devices_;
  std::map<std::string, double, std::less<>> planned_headroom_;  // other than 1
  bool may_share_again_ = false;  // some model ceased to disturb since the last plan
  Time period_end_;
  Time routes_changed_;
};

}  // namespace gpulet::serve
