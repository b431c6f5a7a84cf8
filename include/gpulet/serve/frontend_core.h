// FrontendCore: the frontend without its sockets. Takes events with their time, gives effects.
//
// It joins admission, the queues and batches (Dispatcher), the backends (Fleet), the request
// monitor (Demands) and the way of a plan into force. The daemon, the simulator and the tests run
// this same code: given the same events at the same times it gives the same effects. Pure: no I/O,
// clock, thread or log. One thread at a time.
//
// The host must: feed every event in order, feed Settle after a run of events and whenever
// next_wake() has come, carry out every effect in order, and answer each MakePlan with one PlanMade
// and each StepToRun with one StepDone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gpulet/control/options.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/trace.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/applications.h"
#include "gpulet/serve/catalogue.h"
#include "gpulet/serve/core_control.h"
#include "gpulet/serve/demands.h"
#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/exclusions.h"
#include "gpulet/serve/file_problems.h"
#include "gpulet/serve/fleet.h"
#include "gpulet/serve/frontend_events.h"
#include "gpulet/serve/frontend_status.h"
#include "gpulet/serve/hello_check.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/model_versions.h"
#include "gpulet/serve/peer_rules.h"
#include "gpulet/serve/plan_record.h"
#include "gpulet/serve/quarantine.h"
#include "gpulet/serve/rollout.h"
#include "gpulet/serve/served_model.h"
#include "gpulet/serve/statistics.h"
#include "gpulet/serve/trace_choice.h"
#include "gpulet/serve/under_way.h"

namespace gpulet::serve {

// Ids of one run of the frontend start at its number shifted by so many bits, so that runs do not
// meet: 2^40 gpulets and batches each.
inline constexpr unsigned kRunShift = 40;

struct FrontendOptions {
  // Distinguishes this run from earlier ones in the ids of gpulets and batches; 1 .. 2^23.
  std::uint64_t run = 1;
  std::string policy = "elastic";
  double margin = 1.05;
  schedule::Headroom headroom = schedule::Headroom::poisson;  // of every plan
  std::optional<std::uint32_t> max_devices;                   // of every plan
  // The first plan stays in force whatever the monitor sees, for experiments on plans. It is made
  // for the configured rates as they are.
  bool keep_plan = false;
  Duration period = std::chrono::seconds(20);           // of the scheduler
  Duration heartbeat = std::chrono::milliseconds(500);  // a backend silent for four of them is lost
  Duration tick = std::chrono::milliseconds(500);       // of the monitor
  Duration least_between_plans = std::chrono::seconds(1);
  Duration gather = std::chrono::milliseconds(200);  // after a node joined: more may be coming
  // The same where nodes bring gpulets that serve already: nothing presses.
  Duration gather_after_restart = std::chrono::seconds(3);
  Duration preparing_timeout =
      std::chrono::seconds(180);  // for the gpulets of a plan to become ready
  // For versions that failed for no lasting cause, and models whose gpulets failed everywhere.
  Duration hold_back = std::chrono::seconds(30);
  ExclusionOptions exclusions;  // of nodes and devices where gpulets fail
  // How long gpulets that a joining backend brought wait for a plan that takes them up.
  Duration take_up_within = std::chrono::seconds(30);
  std::uint32_t max_queue_per_model = 4096;
  UnderWayLimits under_way{};
  // A request without a timeout of its own waits so long for a model that sleeps, whatever its SLO.
  Duration wake_within = std::chrono::seconds(10);
  // How long after the SLO a result is still delivered, and counted as late. Then its request is
  // answered too_late, even while its batch runs. A request with a timeout of its own is answered
  // at that.
  Duration late_grace = std::chrono::milliseconds(20);
  std::uint32_t trace_every = 0;  // every so manieth request is Traced; 0: none
  DemandOptions demands;
  QuarantineOptions quarantine;
  control::Options control;  // of executables whose cores are controlled
};

// What is asked of a model at every request, without copies of what it is.
struct ModelView {
  const ServedModel& model;
  std::uint32_t number = 1;  // as in ModelInfo
  ModelState state = ModelState::loading;
  std::string reason;
  std::shared_ptr<const Application> application{};  // null: it is a model
};

class StatusInSteps;

class FrontendCore {
 public:
  FrontendCore(FrontendOptions options, Catalogue catalogue, Time now);

  void on(FrontendEvent event, Time now, FrontendEffects& effects);

  // When the next Settle is due without any other event. Never kNever: the monitor ticks.
  [[nodiscard]] Time next_wake() const;

  // Takes requests: a plan is in force, a backend is connected, and it does not drain.
  [[nodiscard]] bool serving() const {
    return epoch_.value > 0 && !draining_ && fleet_.has_usable_device();
  }
  // The plan in force; 0 before the first.
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] const schedule::Plan& plan() const { return plan_; }
  [[nodiscard]] FrontendStatus status(Time now) const;
  // The same in steps: takes about so many more parts (models, gpulets, devices). Returns whether
  // it is whole.
  [[nodiscard]] bool take(StatusInSteps& taken, std::size_t parts) const;
  // Of one model or application; nothing where the name is not served.
  [[nodiscard]] std::optional<ModelStatus> model_status(std::string_view name, Time now) const;
  // The next models after that name, `most` at most.
  [[nodiscard]] ModelsReply models_after(const std::string& name, std::size_t most) const;
  // Those of these names that are served or leaving, by name.
  [[nodiscard]] std::vector<ModelInfo> models(std::vector<std::string> names) const;
  // One of them, or an application; nothing where the name is not served. Good until the next
  // event.
  [[nodiscard]] std::optional<ModelView> model(std::string_view name) const;
  // Not served, but could be loaded (Catalogue::unloaded).
  [[nodiscard]] bool is_unloaded(std::string_view name) const;
  // Null: no application has that name.
  [[nodiscard]] std::shared_ptr<const Application> application(std::string_view name) const {
    return applications_.find(name);
  }
  // Places for versions of models, in use or not: bounded however often models change.
  [[nodiscard]] std::size_t model_slots() const { return dispatcher_.models().size(); }
  // Some version that serves, or is to serve, is of that file.
  [[nodiscard]] bool knows_file(std::string_view sha256) const;
  // A changed catalogue is taken in over several turns, and there is more of it to come.
  [[nodiscard]] bool takes_in_catalogue() const { return catalogue_.has_value(); }
  // As peer_rules.h, for a result whose payload is still to come.
  [[nodiscard]] std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch) const {
    return serve::breach_of_result(from, batch, fleet_, dispatcher_);
  }

 private:
  void on_event(ClientSaid event, Time now, FrontendEffects& effects);
  void on_event(ClientGone event, Time now, FrontendEffects& effects);
  void on_event(BackendSaid event, Time now, FrontendEffects& effects);
  void on_event(const BackendGone& event, Time now, FrontendEffects& effects);
  void on_event(const BackendBroke& event, Time now, FrontendEffects& effects);
  void on_event(PlanMade event, Time now, FrontendEffects& effects);
  void on_event(CatalogueChanged event, Time now, FrontendEffects& effects);
  void on_event(const CatalogueRefused& event, Time now, FrontendEffects& effects);
  void on_event(StepDone event, Time now, FrontendEffects& effects);
  void on_event(TraceUntil event, Time now, FrontendEffects& effects);
  void on_event(TraceEvery event, Time now, FrontendEffects& effects);
  void on_event(Settle event, Time now, FrontendEffects& effects);
  void on_event(Drain event, Time now, FrontendEffects& effects);

  void heard(BackendId backend, const Hello& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const GpuletReport& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const BatchResult& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, ModelWanted message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const Heartbeat& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, Leaving message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const DeviceReport& message, Time now, FrontendEffects& effects);

  // What no backend may do (frontend_peers.cc).
  void refuse_backend(BackendId backend, const PeerBreach& breach, Time now,
                      FrontendEffects& effects);
  [[nodiscard]] RunIds run_ids() const;
  // Retires the gpulets that backends brought and no plan can take up: their processes must not
  // stay for ever.
  void retire_unwanted(Time now, FrontendEffects& effects);

  // Models that come, change and go (frontend_models.cc).
  // The next models of the catalogue that is being taken in.
  void take_in_catalogue(Time now, FrontendEffects& effects);
  // Returns whether it is news.
  bool take_in_model(const ServedModel& model, bool asked_for, Time now, FrontendEffects& effects);
  void add_model(ServedModel model, Time now);
  // Takes in what the catalogue says of a model that is known. Returns whether that is news.
  bool change_model(NamedModel& known, const ServedModel& model, bool asked_for, Time now,
                    FrontendEffects& effects);
  bool change_settings(const NamedModel& known, const ServedModel& model, Time now);
  void change_description(ModelIndex index, const ServedModel& model);
  void remove_model(const std::string& name, Time now, FrontendEffects& effects);
  // Has the version warmed, to take over when it is ready.
  void stage_version(NamedModel& known, const ServedModel& model, std::string id, Time now,
                     FrontendEffects& effects);
  void drop_next(NamedModel& known, FrontendEffects& effects);
  void take_over(NamedModel& known, DispatchOutput& output, Time now, FrontendEffects& effects);
  // Refuses what is wanted of the model, until `until`.
  void refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                      FrontendEffects& effects);
  void retry_refused(Time now, FrontendEffects& effects);
  // Models whose processes crash (frontend_crashes.cc).
  void process_lost(const LostProcess& lost, Time now, FrontendEffects& effects);
  void quarantine(const std::string& name, Time now, FrontendEffects& effects);
  void end_quarantines(Time now, FrontendEffects& effects);
  // Some gpulet holds the model beside others.
  [[nodiscard]] bool has_company(const std::string& name) const;
  // Requests that wait for a model to wake, in vain: it has no place.
  void refuse_wakers(Time now, FrontendEffects& effects);
  void proven(const std::vector<schedule::LoadedModel>& models);

  // Gpulets that fail (frontend_failures.cc).
  void gpulet_failed(const FleetGpulet& gpulet, const GpuletReport& report, bool on_its_way,
                     Time now, FrontendEffects& effects);
  // The device takes no new gpulets for a while.
  void exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
               const Status& why, Time now, FrontendEffects& effects);
  // For no known cause: the models of those names may be to blame, or the device.
  void suspect(const std::vector<std::string>& names, const FleetGpulet& gpulet,
               const GpuletReport& report, Time now, FrontendEffects& effects);
  // Failed everywhere: it is refused, or not planned for a while. `turn`: those who failed with it
  // and come before it when they are tried again.
  void give_up(NamedModel& known, const ModelFailure& failure, std::size_t turn, Time now,
               FrontendEffects& effects);
  // Names of the gpulet's models whose wanted version it holds.
  [[nodiscard]] std::vector<std::string> wanted_models(const FleetGpulet& gpulet) const;
  // There is another node with devices for the model, on which the version did not fail.
  [[nodiscard]] bool has_other_node(const std::string& name, const ModelVersion& version) const;
  // The plan on its way is given up, but what was made for it stays for the next one.
  void abandon_rollout();
  [[nodiscard]] std::set<schedule::DeviceKey> closed_devices(
      const schedule::Cluster& cluster) const;
  // Where no device takes new gpulets, models that failed wait until one does. Returns whether the
  // others may be planned there as ever: not where one of those that failed serves, since its plan
  // would fail again.
  bool park_failed(bool nothing_is_open);
  // The parts of the plan in force on these devices that go on.
  [[nodiscard]] std::vector<schedule::PlannedGpulet> keep_on(
      const std::set<schedule::DeviceKey>& closed,
      const std::vector<schedule::ModelDemand>& demands);
  [[nodiscard]] std::string failure_of(const NamedModel& known) const;

  // Forgets versions that nothing holds any more, some of them in one turn.
  void sweep_versions(Time now, DispatchOutput& output);
  [[nodiscard]] ModelInfo describe(const std::string& name, const NamedModel& known) const;
  [[nodiscard]] ModelInfo describe(const LeavingVersion& leaving) const;
  [[nodiscard]] ModelInfo describe(const Application& application) const;
  [[nodiscard]] bool withheld(const std::string& name) const;
  [[nodiscard]] bool has_ready_lane(const std::string& name) const;
  // As the fleet says, but what holds a model that nobody wants can serve nothing as it is: it must
  // go, so that the memory comes back.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running_gpulets() const;
  [[nodiscard]] std::optional<ModelIndex> lane_model(GpuletId gpulet,
                                                     const std::string& name) const;
  [[nodiscard]] ModelState state_of(const std::string& name, const NamedModel& known) const;
  [[nodiscard]] std::string reason_of(const std::string& name, const NamedModel& known) const;

  // Why no gpulet serves the model or is on its way to: the words for its clients. Empty: one does,
  // or may yet.
  [[nodiscard]] std::string why_unserved(const std::string& name, const NamedModel& known) const;
  // What the plan in force leaves of the model without a place; null: nothing.
  [[nodiscard]] const schedule::Unserved* unserved_part(const std::string& name) const;
  void admit(const std::string& name, NamedModel& known, Request&& request, Time now,
             DispatchOutput& output);
  // Counts a request that is here or will be, wakes the model, and has a plan made where none
  // expected it. Returns whether it slept and has no gpulet ready.
  bool expect(const std::string& name, NamedModel& known);
  // Queues it, or refuses it where the model has no place. `slept`: what expect() said of it.
  void place(const std::string& name, NamedModel& known, Request&& request, bool slept, Time now,
             DispatchOutput& output);

  // Applications (frontend_applications.cc). Their calls are requests of the engine's own client.
  // Returns whether they are others than before.
  bool replace_applications(const ApplicationList& applications, Time now);
  // Returns whether it was for an application.
  bool ask_application(ClientSaid& event, Time now, FrontendEffects& effects);
  [[nodiscard]] std::string why_unserved(const Application& application) const;
  [[nodiscard]] ModelState state_of(const Application& application) const;
  void carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects);
  void call(ModelToCall call, Time now, FrontendEffects& effects);
  // Hands the applications what their calls were answered, and makes the calls that follow.
  void settle_calls(Time now, FrontendEffects& effects);
  // Its status in parts (frontend_status.cc). Those of StatusInSteps return whether their stage is
  // over.
  void take_whole(FrontendStatus& status) const;
  [[nodiscard]] bool take_backends(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_gpulets(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_models(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_applications(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] GpuletStatus status_of(GpuletId id, const FleetGpulet& gpulet, Time now) const;
  [[nodiscard]] ModelStatus status_of(const std::string& name, const NamedModel& known,
                                      Time now) const;
  [[nodiscard]] ModelStatus status_of(const Applications::Row& row, Time now) const;
  void add_to_device(DeviceStatus& device, GpuletId id, const FleetGpulet& gpulet) const;
  [[nodiscard]] double part_of(GpuletId id, const FleetGpulet& gpulet) const;
  [[nodiscard]] Status admissible(const InferRequest& request, const ServedModel& model) const;
  void tick(Time now, FrontendEffects& effects);
  void lose_backend(BackendId backend, const Status& reason, Time now, FrontendEffects& effects);
  // Backends or devices came or went: whether requests can hope for any.
  void settle_absence();
  // What keeps every model from being served; empty: nothing does.
  [[nodiscard]] std::string why_nothing_serves() const;
  // Something changed: a plan is made as soon as may be, and `why` is told with what comes of it.
  // What is wanted again for the same `subject` (a model), where there is one, is told once.
  void want_plan(std::string why, std::string subject = {});
  [[nodiscard]] bool plan_wanted() const { return !plan_reasons_.empty(); }
  void plan_if_wanted(Time now, FrontendEffects& effects);
  void tell_decision(const schedule::Plan& plan, const schedule::Steps& steps,
                     schedule::Explanation explanation, Time now, FrontendEffects& effects);

  // A plan's way into force, by way of others where MIG divides devices.
  [[nodiscard]] std::deque<schedule::Plan> stages_to(schedule::Plan plan, Time now,
                                                     FrontendEffects& effects);
  void follow_stages(Time now, FrontendEffects& effects);
  [[nodiscard]] bool waits_for_instances(const schedule::Plan& plan,
                                         const schedule::Steps& steps) const;
  [[nodiscard]] bool rolls_out() const {
    return rollout_.has_value() || !stages_.empty() || !successions_.empty();
  }
  // What thousands of models or gpulets need takes several turns, and the next one can come now.
  [[nodiscard]] bool has_more_to_do() const {
    return catalogue_ || !successions_.empty() || sweep_goes_on_ ||
           (rollout_ && rollout_->has_shadows());
  }
  void begin_rollout(schedule::Plan plan, schedule::Steps steps, Time now,
                     FrontendEffects& effects);
  // Tells backends to create the next of the plan's new gpulets, some of them in one turn.
  void create_shadows(Time now, FrontendEffects& effects);
  void create_gpulet(GpuletId id, Time now, FrontendEffects& effects);
  [[nodiscard]] double memory_needed_mb(const schedule::PlannedGpulet& planned) const;
  void retire_gpulet(GpuletId id, FrontendEffects& effects);
  // Nothing can take over from nodes that are stopping: they need not wait.
  void release_leaving(FrontendEffects& effects);
  void advance_rollout(Time now, FrontendEffects& effects);
  void route_unserved_models(Time now, FrontendEffects& effects);
  void clear_devices(Time now, FrontendEffects& effects);
  void make_postponed(Time now, FrontendEffects& effects);
  void activate(Time now, FrontendEffects& effects);
  void set_plan(schedule::Plan plan);
  // What was in force stays; what was made for the plan on its way goes.
  void cancel_rollout(FrontendEffects& effects);
  void adopt_gpulets(BackendId backend, Time now, FrontendEffects& effects);
  [[nodiscard]] bool adoptable(const FleetGpulet& gpulet) const;
  void put_routes_in_force(Time now, FrontendEffects& effects);
  // Which models' next versions take over with these routes. What those leave behind that cannot
  // follow is sent to its old gpulets while they still have routes.
  [[nodiscard]] std::deque<std::string> begin_successions(const std::vector<Route>& routes,
                                                          Time now, DispatchOutput& output);
  // The next of them take over; those that waited for the version before follow.
  void continue_successions(Time now, FrontendEffects& effects);
  // Empty where the profiles do not know.
  [[nodiscard]] std::vector<Duration> execution_of(const schedule::PlannedGpulet& planned,
                                                   const schedule::Assignment& assignment) const;
  // Executables whose cores are controlled (frontend_control.cc): which there are, as the routes
  // have it; a step of their control; telling backends.
  void set_controlled(Time now, FrontendEffects& effects);
  void control_cores(Time now, FrontendEffects& effects);
  void tell_cores(FrontendEffects& effects);
  // Null where it was not measured on that type of device, or no backend offers the device.
  [[nodiscard]] const profile::ModelProfile* profile_of(const schedule::DeviceKey& device,
                                                        const std::string& model) const;
  [[nodiscard]] Route route_of(GpuletId id, const schedule::PlannedGpulet& planned) const;
  void emit(DispatchOutput&& output, FrontendEffects& effects);
  [[nodiscard]] observe::RequestTraceRecord record_of(const Answer& answer) const;
  void note(bool warning, std::string text, Time now, FrontendEffects& effects,
            StatusEvent::Kind kind = StatusEvent::Kind::note);
  void note_of_plan(bool warning, std::string text, Time now, FrontendEffects& effects);

  FrontendOptions options_;
  std::shared_ptr<const profile::ProfileSet> profiles_;           // never null
  std::shared_ptr<const profile::InterferenceSet> interference_;  // may be null
  UnderWay under_way_;
  struct CatalogueUnderWay {
    std::vector<ServedModel> models;
    std::size_t next = 0;  // of them
    ApplicationList applications;
    std::shared_ptr<const std::vector<std::string>> unloaded;
    std::set<std::string, std::less<>> present;  // names of all models
    std::set<std::string, std::less<>> asked_for;
    std::optional<std::deque<std::string>> gone;  // known once all models are taken in
    bool changed = false;                         // something is other than it was before
  };
  std::optional<CatalogueUnderWay> catalogue_;
  std::shared_ptr<const std::vector<std::string>> unloaded_;  // of the last that was taken in
  FileProblems file_problems_;
  ModelVersions versions_;
  std::deque<std::string> successions_;  // models whose next version has routes and takes over
  bool sweep_goes_on_ = false;           // there are more versions to forget
  Dispatcher dispatcher_;
  Fleet fleet_;
  Demands demands_;
  CoreControl control_;
  Quarantine quarantine_;
  Applications applications_;
  TraceChoice trace_choice_;
  std::deque<Answer> called_;  // answers to their calls, not handed to them yet

  // The plan in force, and which gpulet serves which part of it.
  Epoch epoch_;
  schedule::Plan plan_;
  std::unordered_map<std::string, std::size_t> unserved_;  // by model, index into the plan's
  std::map<GpuletId, schedule::PlannedGpulet> serving_;

  // The plan on its way.
  std::uint64_t plan_number_ = 0;
  bool plan_pending_ = false;
  std::vector<PlanReason> reasons_of_pending_;
  std::optional<Rollout> rollout_;
  std::deque<schedule::Plan> stages_;  // that come after it, the last of them the plan decided on
  ReorganisationCounters reorganisation_counters_;
  PlanRecord record_;
  bool gpulets_changed_ = false;  // since the roll-out was last looked at

  // Why and when to plan.
  std::vector<PlanReason> plan_reasons_;  // why a plan is wanted, in words; empty: none is
  bool plan_urgent_ = false;     // a request waits for it: not even the pause between plans counts
  bool plan_next_turn_ = false;  // and not in this one, which is long already
  bool last_plan_refused_ = false;  // by the checker; tried again at the end of the period
  Time last_plan_;
  Time gather_until_{};
  Time settled_at_{};
  Time period_end_;
  std::map<std::string, Time> held_back_;  // models whose gpulets failed everywhere, until when
  Exclusions exclusions_;
  std::set<GpuletId> kept_;     // by the plan on its way, on devices that take no new gpulets
  bool uses_excluded_ = false;  // the plan on its way may, because no other device is there
  std::map<FailureCause, std::uint64_t> failures_;

  PeerViolations violations_{};
  std::array<Time, kPeerViolations> violation_noted_{};  // when the last one of each was noted

  std::uint64_t next_gpulet_;
  bool draining_ = false;
  bool drained_ = false;
  Time next_tick_;
  struct Busy {
    double fraction = 0;  // of the last tick
    Duration executed_at_tick{};
  };
  std::unordered_map<GpuletId, Busy> busy_;
  std::deque<StatusEvent> events_;
};

}  // namespace gpulet::serve
