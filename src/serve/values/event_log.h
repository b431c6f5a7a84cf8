// EventLog: the events that the frontend reports; PlanHistory: its recent plans. Also the phrases
// that several components use in messages. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

// Records events for the status and reports each to the log (EventNote).
class EventLog {
 public:
  void note(bool warning, std::string text, Time now, FrontendEffects& effects,
            StatusEvent::Kind kind = StatusEvent::Kind::note);
  // An event of that decision.
  void note_plan(const PlanDecision& decision, std::string text, Time now,
                 FrontendEffects& effects);

  // The most recent ones, oldest first.
  [[nodiscard]] const std::deque<StatusEvent>& events() const { return events_; }

 private:
  void keep(StatusEvent event);

  std::deque<StatusEvent> events_;
};

// The last decision, the recent decisions that came into force, and counters of all.
class PlanHistory {
 public:
  // `devices_before`: in use under the plan in force.
  void decide(PlanDecision decision, std::uint32_t devices_before);
  void count_unschedulable() { ++counters_.unschedulable; }
  // A stage of the last decision (REQUIRED) is in force, `took` after its rollout began.
  void in_force(Epoch epoch, Duration took, Time now);

  // Null: none yet.
  [[nodiscard]] const std::shared_ptr<const PlanDecision>& decision() const { return decision_; }
  // Those that came into force, newest last.
  [[nodiscard]] const std::deque<PlanInForce>& plans() const { return plans_; }
  // What the plan in force lacks for the model. Empty: nothing, or the plan does not explain it.
  [[nodiscard]] std::optional<schedule::UnservedDetail> missing(const std::string& model) const;
  [[nodiscard]] const ReorganisationCounters& counters() const { return counters_; }

 private:
  std::shared_ptr<const PlanDecision> decision_;
  std::deque<PlanInForce> plans_;
  ReorganisationCounters counters_;
};

// "39.8/s"
[[nodiscard]] std::string per_second(double rate);
// "1 gpulet", "3 gpulets"
[[nodiscard]] std::string counted(std::uint64_t count, const std::string& singular);
// "n0/1"
[[nodiscard]] std::string device_name(const schedule::DeviceKey& device);
// "node n0", "device n0/1"
[[nodiscard]] std::string excluded_name(const Exclusion& exclusion);
// The predicate of "the process serving x ...".
[[nodiscard]] std::string how_it_ended(FailureCause cause, const ProcessEnd& end);

}  // namespace gpulet::serve
