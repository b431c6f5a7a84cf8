// PlanRequests: why and when a new plan is wanted. Journal: where components report what happened,
// why a new plan is wanted, and which plans were decided. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "serve/values/event_log.h"

namespace gpulet::serve {

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

class Journal {
 public:
  // All outlive it.
  Journal(EventLog& log, PlanRequests& requests, PlanHistory& history)
      : log_(log), requests_(requests), history_(history) {}

  // As EventLog::note() and EventLog::note_plan().
  void note(bool warning, std::string text, Time now, FrontendEffects& effects,
            StatusEvent::Kind kind = StatusEvent::Kind::note) {
    log_.note(warning, std::move(text), now, effects, kind);
  }
  void note_plan(const PlanDecision& decision, std::string text, Time now,
                 FrontendEffects& effects) {
    log_.note_plan(decision, std::move(text), now, effects);
  }

  // As PlanRequests::add() and PlanRequests::add_urgent().
  void request_plan(std::string why, std::string subject = {}) {
    requests_.add(std::move(why), std::move(subject));
  }
  void request_urgent_plan(std::string why) { requests_.add_urgent(std::move(why)); }
  [[nodiscard]] PlanRequests& requests() { return requests_; }
  [[nodiscard]] const PlanRequests& requests() const { return requests_; }
  [[nodiscard]] PlanHistory& history() { return history_; }

 private:
  EventLog& log_;
  PlanRequests& requests_;
  PlanHistory& history_;
};

}  // namespace gpulet::serve
