// PlanRecord: the decisions of a frontend, those that came into force with what they were, and why
// a plan was wanted. Pure; one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/serve/frontend_status.h"

namespace gpulet::serve {

// Why a plan is wanted, in words. Of one subject (a model), where there is one, only the latest
// reason is told.
struct PlanReason {
  std::string why;
  std::string subject;
};

class PlanRecord {
 public:
  void decide(PlanDecision decision);
  // A stage of the last decision is in force. REQUIRES: there is a decision.
  void in_force(Epoch epoch, Time now);

  // Null: none yet.
  [[nodiscard]] const std::shared_ptr<const PlanDecision>& decision() const { return decision_; }
  // The last ones that came into force, the newest last.
  [[nodiscard]] const std::deque<PlanInForce>& plans() const { return plans_; }
  // What the model lacks in the plan in force; nothing where that does not say.
  [[nodiscard]] std::optional<schedule::MissingPlace> missing(const std::string& model) const;

 private:
  std::shared_ptr<const PlanDecision> decision_;
  std::deque<PlanInForce> plans_;
};

}  // namespace gpulet::serve
