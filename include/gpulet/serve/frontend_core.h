// FrontendCore: the frontend without its sockets. Takes events with their time, gives effects.
//
// It joins admission, the queues and batches (Dispatcher), the backends (Fleet), the request
// monitor (Demands) and the way of a plan into force. The daemon, the simulator and the tests run
// this same code: given the same events at the same times it gives the same effects. Pure: no I/O,
// clock, thread or log. One thread at a time.
//
// The host must: feed every event in order, feed Settle after a run of events and whenever
// next_wake() has come, carry out every effect in order, and answer each MakePlan with one
// PlanMade.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/demands.h"
#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/fleet.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/rollout.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

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
  Duration preparing_timeout =
      std::chrono::seconds(180);                  // for the gpulets of a plan to become ready
  Duration hold_back = std::chrono::seconds(30);  // for models whose gpulet failed for good
  std::uint32_t max_queue_per_model = 4096;
  DemandOptions demands;
};

// ---- events

struct ClientSaid {
  ClientId client;
  InferRequest request;
};
struct ClientGone {
  ClientId client;
};
struct BackendSaid {
  BackendId backend;
  BackendMessage message;
};
struct BackendGone {
  BackendId backend;
  Status reason;
};
struct PlanMade {
  std::uint64_t number = 0;  // of the MakePlan it answers
  schedule::Plan plan;
  std::vector<std::string> faults;  // what check() said; such a plan is not used
};
struct Settle {};  // a run of events is over, or next_wake() has come
struct Drain {};   // take nothing new, answer what is here, then say Drained

using FrontendEvent =
    std::variant<ClientSaid, ClientGone, BackendSaid, BackendGone, PlanMade, Settle, Drain>;

// ---- effects

struct ReplyToClient {
  ClientId client;
  InferReply reply;
};
struct TellBackend {
  BackendId backend;
  BackendCommand command;
};
struct SendModelFile {
  BackendId backend;
  std::string sha256;
};
struct DropBackend {
  BackendId backend;
  Status reason;
};
struct MakePlan {
  std::uint64_t number = 0;
  schedule::Cluster cluster;
  std::vector<schedule::ModelDemand> demands;
  std::optional<schedule::Plan> current;
  schedule::PlanOptions options;
};
struct Note {  // for the log and the status
  bool warning = false;
  std::string text;
};
struct Drained {};

using FrontendEffect =
    std::variant<ReplyToClient, TellBackend, SendModelFile, DropBackend, MakePlan, Note, Drained>;
using FrontendEffects = std::vector<FrontendEffect>;

// ---- what is going on

struct ModelStatus {
  std::string name;
  double slo_ms = 0;
  double rate_seen = 0;
  double rate_planned = 0;
  double rate_unserved = 0;
  std::string reason;  // why unserved
  std::size_t queued = 0;
  ModelCounters counters;
  double p50_ms = 0;
  double p99_ms = 0;
};
struct GpuletStatus {
  GpuletId id;
  FleetGpulet gpulet;
  std::optional<schedule::PlannedGpulet> planned;  // its part of the plan in force
  std::size_t in_flight = 0;
  double busy = 0;  // of the last tick
  Dispatcher::GpuletStatistics statistics;
};
struct FrontendStatus {
  std::string state;
  std::string policy;
  Epoch epoch;
  bool reorganising = false;
  bool schedulable = true;
  std::map<BackendId, FleetBackend> backends;
  std::vector<GpuletStatus> gpulets;
  std::vector<ModelStatus> models;
  std::deque<std::pair<Time, std::string>> events;  // the last ones
};

class FrontendCore {
 public:
  // `profiles` must outlive the core.
  FrontendCore(FrontendOptions options, std::vector<ServedModel> models,
               const profile::ProfileSet& profiles, Time now);

  void on(FrontendEvent event, Time now, FrontendEffects& effects);

  // When the next Settle is due without any other event. Never kNever: the monitor ticks.
  [[nodiscard]] Time next_wake() const;

  // The plan in force; 0 before the first.
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] const schedule::Plan& plan() const { return plan_; }
  [[nodiscard]] FrontendStatus status(Time now) const;
  [[nodiscard]] ModelsReply models() const;

 private:
  void on_event(ClientSaid event, Time now, FrontendEffects& effects);
  void on_event(ClientGone event, Time now, FrontendEffects& effects);
  void on_event(BackendSaid event, Time now, FrontendEffects& effects);
  void on_event(const BackendGone& event, Time now, FrontendEffects& effects);
  void on_event(PlanMade event, Time now, FrontendEffects& effects);
  void on_event(Settle event, Time now, FrontendEffects& effects);
  void on_event(Drain event, Time now, FrontendEffects& effects);

  void heard(BackendId backend, const Hello& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const GpuletReport& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, const BatchResult& message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, ModelWanted message, Time now, FrontendEffects& effects);
  void heard(BackendId backend, Heartbeat message, Time now, FrontendEffects& effects);

  // Why no gpulet serves the model or is on its way to: the words for its clients. Empty: one does,
  // or may yet.
  [[nodiscard]] std::string why_unserved(ModelIndex model) const;
  [[nodiscard]] Status admissible(const InferRequest& request, const ServedModel& model) const;
  void tick(Time now, FrontendEffects& effects);
  void lose_backend(BackendId backend, const Status& reason, Time now, FrontendEffects& effects);
  // Something changed: a plan is made as soon as may be, and `why` is told with what comes of it.
  void want_plan(std::string why);
  [[nodiscard]] bool plan_wanted() const { return !plan_reasons_.empty(); }
  void plan_if_wanted(Time now, FrontendEffects& effects);
  void advance_rollout(Time now, FrontendEffects& effects);
  void activate(Time now, FrontendEffects& effects);
  void put_routes_in_force(Time now);
  [[nodiscard]] Route route_of(GpuletId id, const schedule::PlannedGpulet& planned) const;
  void emit(DispatchOutput&& output, FrontendEffects& effects);
  void note(bool warning, std::string text, Time now, FrontendEffects& effects);

  FrontendOptions options_;
  const profile::ProfileSet* profiles_;
  std::unordered_map<std::string, ModelIndex> model_index_;
  Dispatcher dispatcher_;
  Fleet fleet_;
  Demands demands_;

  // The plan in force, and which gpulet serves which part of it.
  Epoch epoch_;
  schedule::Plan plan_;
  std::map<GpuletId, schedule::PlannedGpulet> serving_;

  // The plan on its way.
  std::uint64_t plan_number_ = 0;
  bool plan_pending_ = false;
  std::vector<std::string> reasons_of_pending_;
  std::optional<Rollout> rollout_;
  bool gpulets_changed_ = false;  // since the roll-out was last looked at

  // Why and when to plan.
  std::vector<std::string>
      plan_reasons_;  // what changed, in words: plan as soon as may be; empty: nothing
  bool last_plan_refused_ = false;  // by the checker; tried again at the end of the period
  Time last_plan_;
  Time gather_until_{};
  Time settled_at_{};
  Time period_end_;
  std::map<std::string, Time> held_back_;  // models whose gpulet failed, until when

  std::uint64_t next_gpulet_;
  bool draining_ = false;
  bool drained_ = false;
  Time next_tick_;
  struct Busy {
    double fraction = 0;  // of the last tick
    Duration executed_at_tick{};
  };
  std::unordered_map<GpuletId, Busy> busy_;
  std::deque<std::pair<Time, std::string>> events_;
};

}  // namespace gpulet::serve
