#include "gpulet/serve/plan_record.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gpulet::serve {
namespace {

// Of the plans that came into force; fewer where they are large.
constexpr std::size_t kPlansKept = 8;
constexpr std::size_t kGpuletsKept = 8192;

}  // namespace

bool PlanDecision::moves_gpulets() const {
  return retired > 0 || std::find(created.begin(), created.end(), true) != created.end();
}

void PlanRecord::decide(PlanDecision decision) {
  decision_ = std::make_shared<const PlanDecision>(std::move(decision));
}

void PlanRecord::in_force(Epoch epoch, Time now) {
  const PlanInForce newest{decision_, epoch, now, now - decision_->decided};
  if (!plans_.empty() && plans_.back().decision == decision_) {
    plans_.back() = newest;
  } else {
    plans_.push_back(newest);
  }
  std::size_t gpulets = 0;
  for (const PlanInForce& plan : plans_) gpulets += plan.decision->plan.gpulets.size();
  while (plans_.size() > kPlansKept || (plans_.size() > 1 && gpulets > kGpuletsKept)) {
    gpulets -= plans_.front().decision->plan.gpulets.size();
    plans_.pop_front();
  }
}

std::optional<schedule::MissingPlace> PlanRecord::missing(const std::string& model) const {
  if (plans_.empty()) return std::nullopt;
  const auto& missing_places = plans_.back().decision->explanation.missing;  // by model
  const auto found = std::lower_bound(
      missing_places.begin(), missing_places.end(), model,
      [](const schedule::MissingPlace& one, const std::string& name) { return one.model < name; });
  if (found == missing_places.end() || found->model != model) return std::nullopt;
  return *found;
}

}  // namespace gpulet::serve
