// The plan in force and the next one: PlanRequests (why and when to plan), Rollout (a plan that is
// being brought into force) and Deployment (the plan in force, the gpulets that serve it, and the
// rollout). Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/mixture.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/frontend_events.h"
#include "gpulet/serve/frontend_status.h"
#include "serve/backend_registry.h"
#include "serve/dispatcher.h"
#include "serve/event_log.h"

namespace gpulet::serve {

// The profiles and the interference models of the catalogue in force.
struct ProfilesInForce {
  std::shared_ptr<const profile::ProfileSet> profiles;           // never null; with estimates
  std::shared_ptr<const profile::InterferenceSet> interference;  // of `measured`; may be null
  std::shared_ptr<const profile::ProfileSet> measured;  // as in the catalogue (serve/estimates.h)

  // The model's profile on that device. Null: there is no offer or no such profile.
  [[nodiscard]] const profile::ModelProfile* find(const DeviceOffer* offer,
                                                  const std::string& model) const;
};

// The reasons for which a new plan is wanted, and whether one is being made.
class PlanRequests {
 public:
  // `subject`: the model concerned, if any. A later request for it replaces the reason.
  void add(std::string why, std::string subject = {});
  // An urgent plan does not wait for the minimal interval between plans.
  void add_urgent(std::string why);
  [[nodiscard]] bool any() const { return !reasons_.empty(); }
  [[nodiscard]] bool urgent() const { return urgent_; }
  // No plan is made before that time, because more changes may follow.
  void gather_until(Time time) { gather_until_ = time; }
  [[nodiscard]] Time gather_until() const { return gather_until_; }

  // Begins a plan: takes the requests and returns the plan's number.
  std::uint64_t begin();
  // The plan of that number was made. Returns false if it is outdated.
  [[nodiscard]] bool finish(std::uint64_t number);
  // The plan that is being made is outdated: its result will be ignored.
  void discard();
  // The next plan is the first one of this frontend's leadership.
  void start_over();
  // A plan was begun since the start, or since start_over().
  [[nodiscard]] bool begun() const { return begun_; }
  // A plan is being made.
  [[nodiscard]] bool pending() const { return pending_; }
  // Of the last plan that was begun or discarded; 0: none.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  // The reasons for the last plan that was begun, separated by semicolons.
  [[nodiscard]] std::string reasons_of_last() const;

 private:
  struct Reason {
    std::string why;
    std::string subject;
  };

  std::vector<Reason> reasons_;
  std::vector<Reason> reasons_of_last_;
  bool urgent_ = false;
  Time gather_until_{};
  bool pending_ = false;
  bool begun_ = false;
  std::uint64_t number_ = 0;
};

// A plan that is being brought into force (docs/architecture.md, "The path of a plan"). New gpulets
// are prepared while the old ones serve. Each begins to serve when it is ready and the rules allow
// (schedule/mixture.h); what serves meanwhile is a mixture of both plans. The rollout ends when the
// whole plan serves. It does not wait for gpulets that take long: they join later
// (Deployment::missing). Where a device cannot hold old and new processes, they are replaced in
// place, one gpulet at a time (schedule/replacement.h).
class Rollout {
 public:
  // `new_id` returns ascending ids for the new gpulets. `in_place`: the devices that cannot hold
  // new gpulets beside the old ones. Stops waiting at `now` + `patience`, but see wait_longer().
  Rollout(schedule::Plan plan, schedule::Steps steps, const std::set<schedule::DeviceKey>& in_place,
          const std::function<GpuletId()>& new_id, Time now, Duration patience);

  // Ends the rollout: part_of() is not valid any more.
  [[nodiscard]] schedule::Plan take_plan() { return std::move(plan_); }
  [[nodiscard]] Time began() const { return began_; }
  // The gpulets of the plan, kept and new, with their index in the plan. Without lost ones.
  [[nodiscard]] const std::map<GpuletId, std::size_t>& parts() const { return parts_; }
  // The gpulet's part of the plan. REQUIRES: parts() contains it.
  [[nodiscard]] const schedule::PlannedGpulet& part_of(GpuletId id) const {
    return plan_.gpulets[parts_.at(id)];
  }
  [[nodiscard]] const std::vector<GpuletId>& retire() const { return steps_.retire; }
  [[nodiscard]] bool is_new(GpuletId id) const { return created_.contains(id); }
  // The gpulet is not ready.
  [[nodiscard]] bool awaits(GpuletId id) const {
    return awaited_.contains(id) || late_.contains(id);
  }

  // Takes the lowest new gpulet that is still to be created. REQUIRES: has_to_create().
  [[nodiscard]] GpuletId take_to_create();
  [[nodiscard]] bool has_to_create() const { return !to_create_.empty(); }

  // Waits for a kept gpulet that is still being prepared.
  void await(GpuletId id) { awaited_.insert(id); }
  // Waits until then for this gpulet, if it is later than for the others.
  void wait_longer(GpuletId id, Time until);
  // A kept gpulet that is being prepared for long already is not waited for.
  void expect_late(GpuletId id) { late_.insert(id); }
  void ready(GpuletId id) {
    awaited_.erase(id);
    late_.erase(id);
  }
  // The gpulet ended or will never be ready.
  void lost(GpuletId id);

  // ---- in place

  // The new gpulets whose device has no room for them yet.
  [[nodiscard]] const std::set<GpuletId>& postponed() const { return postponed_; }
  // Old gpulets of the device were told to end; one that has not left it by then does not end.
  void await_leaving(const schedule::DeviceKey& device, Time until);
  // Old gpulets of the device were to have left it.
  [[nodiscard]] bool overdue(const schedule::DeviceKey& device, Time now) const;
  // The gpulet is created now and has until then.
  void create_postponed(GpuletId id, Time until);
  // Gpulets of these models are being prepared that need no other to end, within their time.
  [[nodiscard]] bool awaits_any_of(const std::set<std::string>& models, Time now) const;

  // Nothing is waited for any more, or the time is up.
  [[nodiscard]] bool complete(Time now) const {
    return (awaited_.empty() && postponed_.empty()) || now >= deadline();
  }
  // Those that were not created will not be: they are lost.
  void give_up_postponed();
  // The models of gpulets that the plan has and that do not exist.
  [[nodiscard]] const std::set<std::string>& lost_models() const { return lost_models_; }
  [[nodiscard]] Time deadline() const;

 private:
  schedule::Plan plan_;
  schedule::Steps steps_;
  std::map<GpuletId, std::size_t> parts_;
  std::set<GpuletId> created_;
  std::set<GpuletId> to_create_;
  std::set<GpuletId> awaited_;
  std::set<GpuletId> late_;
  std::set<GpuletId> postponed_;
  std::set<std::string> lost_models_;
  std::map<schedule::DeviceKey, Time> leaving_;
  Time began_;
  Time deadline_;
  std::map<GpuletId, Time> longer_;
};

// The plan in force, its gpulets, and the rollout of the next plan. Issues the ids of gpulets.
//
// What serves is a mixture of two plans while a rollout lasts, and also afterwards where a plan
// came into force without some of its gpulets, which were not ready in time or ended. They join
// when they are ready. Until then earlier gpulets stand in for them.
class Deployment {
 public:
  // `run`: as FrontendOptions::run.
  Deployment(BackendRegistry& backends, std::uint64_t run);

  // ---- the plan in force

  [[nodiscard]] Epoch epoch() const { return epoch_; }  // 0: none yet
  [[nodiscard]] const schedule::Plan& plan() const { return plan_; }
  // The gpulets that have routes, with their parts of the plan.
  using Serving = std::map<GpuletId, schedule::PlannedGpulet>;
  [[nodiscard]] const Serving& serving() const { return serving_; }
  // The serving processes in its MIG instance, including itself, and the first of them. One, and no
  // id, without MIG.
  struct Processes {
    std::uint32_t count = 1;
    GpuletId first;
  };
  [[nodiscard]] Processes processes_beside(const schedule::PlannedGpulet& gpulet) const;
  [[nodiscard]] Serving& serving() { return serving_; }
  // The routes of serving(), as they were last put in force, and how often they were.
  [[nodiscard]] const std::vector<GpuletRoute>& routes() const { return routes_; }
  [[nodiscard]] std::uint64_t routes_revision() const { return routes_revision_; }
  void set_routes(std::vector<GpuletRoute> routes) {
    routes_ = std::move(routes);
    ++routes_revision_;
  }
  // Puts a plan in force without a new epoch.
  void set_plan(schedule::Plan plan);
  // The same with a new epoch.
  void advance(schedule::Plan plan);
  // Gpulets of the plan in force that do not serve their part of it yet.
  [[nodiscard]] const Serving& missing() const { return missing_; }
  // Those in serving() whose part is none of the plan in force.
  [[nodiscard]] const std::set<GpuletId>& stand_ins() const { return stand_ins_; }
  // The plan comes into force as far as it serves: the rest of `wanted` is missing. `lost`: models
  // of gpulets that do not exist.
  void set_missing(const schedule::WantedParts& wanted, std::set<std::string> lost);

  // ---- the mixture

  // What is to serve: the gpulets of the rollout or, without one, of the plan in force. Valid until
  // these change.
  [[nodiscard]] schedule::WantedParts wanted() const;
  // Models of gpulets that wanted() lacks because they ended.
  [[nodiscard]] const std::set<std::string>& lost_models() const {
    return rollout_ ? rollout_->lost_models() : lost_models_;
  }
  // The rates that stay served on the way to wanted().
  [[nodiscard]] const std::map<std::string, double>& least_rates() const { return least_rates_; }
  void set_least_rates(std::map<std::string, double> rates) { least_rates_ = std::move(rates); }
  // Follows the change in serving(), missing() and stand_ins().
  void follow(const schedule::MixtureChange& change, const schedule::WantedParts& wanted);
  // Old gpulets that end before what replaces them can load; empty again when it serves.
  [[nodiscard]] const std::vector<PlannedOutage>& outages() const { return outages_; }
  void set_outages(std::vector<PlannedOutage> outages) { outages_ = std::move(outages); }
  // Forgets the outages that did not begin, and those whose end will not come.
  void drop_other_outages();
  // Its gpulets end from now on. Replaces the estimate of the same outage.
  void begin_outage(PlannedOutage outage);

  // The part of the model's demand that the plan leaves unserved. Null: none.
  [[nodiscard]] const schedule::Unserved* unserved_part(const std::string& model) const;

  // ---- the plan that comes next

  [[nodiscard]] const std::optional<Rollout>& rollout() const { return rollout_; }
  [[nodiscard]] std::optional<Rollout>& rollout() { return rollout_; }
  [[nodiscard]] bool in_rollout(GpuletId id) const {
    return rollout_ && rollout_->parts().contains(id);
  }
  // The plans to roll out after it where MIG divides devices; the last one is the one decided on.
  [[nodiscard]] const std::deque<schedule::Plan>& stages() const { return stages_; }
  [[nodiscard]] std::deque<schedule::Plan>& stages() { return stages_; }
  [[nodiscard]] bool rolls_out() const { return rollout_.has_value() || !stages_.empty(); }
  // Stops the rollout and retires its new gpulets.
  void cancel_rollout(FrontendEffects& effects);
  // Stops the rollout; its new gpulets stay for the next plan.
  void abandon_rollout();
  // Forgets the plan in force and the next one; their gpulets stay as they are.
  void start_over();
  // The gpulet is gone. Returns whether a plan needed it.
  bool lose(GpuletId id);
  // Some gpulet's state changed since the last call of take_gpulets_changed().
  void set_gpulets_changed() { gpulets_changed_ = true; }
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
  [[nodiscard]] bool gpulets_changed() const { return gpulets_changed_; }
  [[nodiscard]] bool take_gpulets_changed() { return std::exchange(gpulets_changed_, false); }

  // ---- gpulets

  // Tells the gpulet's backend to retire it, once, if this frontend commands the backend.
  void retire(GpuletId id, FrontendEffects& effects);
  [[nodiscard]] GpuletId new_gpulet() { return GpuletId{next_gpulet_++}; }
  [[nodiscard]] GpuletId next_gpulet() const { return GpuletId{next_gpulet_}; }
  [[nodiscard]] RunIds run_ids() const;

 private:
  BackendRegistry& backends_;
  std::uint64_t first_id_;
  std::uint64_t next_gpulet_;
  Epoch epoch_;
  schedule::Plan plan_;
  std::unordered_map<std::string, std::size_t> unserved_;  // by model, index into the plan's
  Serving serving_;
  Serving missing_;
  std::set<std::string> lost_models_;  // of the plan in force
  std::set<GpuletId> stand_ins_;
  std::map<std::string, double> least_rates_;
  std::vector<PlannedOutage> outages_;
  std::vector<GpuletRoute> routes_;
  std::uint64_t routes_revision_ = 0;
  std::optional<Rollout> rollout_;
  std::deque<schedule::Plan> stages_;
  Duration usual_start_{};
  std::unordered_map<std::string, Duration> loads_;  // of each model, the last one
  bool gpulets_changed_ = false;
};

}  // namespace gpulet::serve
