// ReorganisationController: decides when to plan, checks and reports the decision, and brings the
// plan into force, in stages where MIG divides devices. Pure; one thread at a time.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serve/adapt/estimates.h"
#include "serve/plans/rollout.h"

namespace gpulet::serve {

class ReorganisationController {
 public:
  // All outlive it.
  struct Dependencies {
    const Dispatcher& dispatcher;
    Demands& demands;
    const BackendRegistry& backends;
    const ProfilesInForce& profiles;
    ModelRegistry& models;
    const Exclusions& exclusions;
    FailureHandler& failures;
    Deployment& deployment;
    RolloutController& rollouts;
    Feedback& feedback;
    Estimates& estimates;
    const ReportedFigures& reported;
    PlanRequests& plan_requests;
    PlanHistory& history;
    EventLog& log;
  };

  ReorganisationController(const FrontendOptions& options, const Dependencies& dependencies,
                           Time now)
      : options_(options),
        core_(dependencies),
        last_plan_(now - options.least_between_plans),
        period_end_(now + options.period) {}

  // Requests a plan if the rates left the planned bands.
  void tick(Time now);
  // Starts a plan (MakePlan) if one is requested and nothing is in the way.
  void plan_if_requested(Time now, FrontendEffects& effects);
  void on_plan_made(PlanMade event, Time now, FrontendEffects& effects);
  // Takes the next step of the rollout, or starts the next stage.
  void advance(Time now, FrontendEffects& effects);
  // When advance() or plan_if_requested() is due without an event. `settled_at`: the last Settle.
  [[nodiscard]] Time next_wake(Time settled_at) const;

 private:
  // The plan in force serves everything, and without CPUs beside other devices. Where it does not,
  // a plan soon after a fall of the load makes room or gives cores back.
  [[nodiscard]] bool roomy() const;
  [[nodiscard]] MakePlan make_request(schedule::Cluster cluster, Time now);
  void plan_probes(MakePlan& effect) const;
  // The parts of the plan in force on excluded devices that stay.
  [[nodiscard]] std::vector<schedule::PlannedGpulet> keep_on(
      const std::set<schedule::DeviceKey>& closed,
      const std::vector<schedule::ModelDemand>& demands);
  // As the registry reports them. A gpulet with a model that is not wanted any more is reported as
  // unusable, so that the plan retires it and its memory is free again.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running_gpulets() const;
  // No device can take over from nodes that are draining: they need not wait.
  void release_draining(FrontendEffects& effects);
  // The plan serves already, as far as its gpulets are ready. A rollout that was abandoned leaves a
  // mixture that is neither plan.
  [[nodiscard]] bool in_force(const schedule::Plan& plan, const schedule::Steps& steps) const;
  // What the plan costs on devices that cannot hold old and new gpulets.
  void add_outage_notes(schedule::Plan& plan, const schedule::Steps& steps, Time now,
                        FrontendEffects& effects);
  void report_decision(const schedule::Plan& plan, const schedule::Steps& steps,
                       schedule::Explanation explanation, Time now, FrontendEffects& effects);
  [[nodiscard]] std::deque<schedule::Plan> stages_to(schedule::Plan plan, Time now,
                                                     FrontendEffects& effects);
  void start_next_stage(Time now, FrontendEffects& effects);
  // Some gpulet that is being retired still occupies an instance that the plan needs.
  [[nodiscard]] bool waits_for_instances(const schedule::Plan& plan,
                                         const schedule::Steps& steps) const;
  // Models that nothing has loaded yet, and for which gpulets that serve would have to end first.
  [[nodiscard]] std::set<std::string> trials_in_place(const schedule::Plan& plan,
                                                      const schedule::Steps& steps) const;

  const FrontendOptions& options_;
  const Dependencies core_;

  Time last_plan_;
  Time period_end_;
  std::optional<Time> waits_since_;  // for instances that gpulets have to leave
  bool last_plan_refused_ = false;   // by the checker; tried again at the end of the period
  std::set<GpuletId> kept_;          // by the plan being made, on excluded devices
  bool uses_excluded_ = false;       // the plan being made may use excluded devices
};

}  // namespace gpulet::serve
