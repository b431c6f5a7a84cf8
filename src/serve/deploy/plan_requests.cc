#include "serve/deploy/plan_requests.h"

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kMostReasons = 4;  // of one plan

}  // namespace

void PlanRequests::add(std::string why, std::string subject) {
  const auto known = std::find_if(reasons_.begin(), reasons_.end(), [&](const Reason& reason) {
    return reason.why == why || (!subject.empty() && reason.subject == subject);
  });
  if (known != reasons_.end()) {
    known->why = std::move(why);
  } else if (reasons_.size() < kMostReasons) {
    reasons_.push_back({std::move(why), std::move(subject)});
  }
}

void PlanRequests::add_urgent(std::string why) {
  add(std::move(why));
  urgent_ = true;
}

std::uint64_t PlanRequests::begin() {
  reasons_of_last_ = std::exchange(reasons_, {});
  pending_ = true;
  begun_ = true;
  urgent_ = false;
  return ++number_;
}

bool PlanRequests::finish(std::uint64_t number) {
  if (!pending_ || number != number_) return false;
  pending_ = false;
  return true;
}

void PlanRequests::discard() {
  pending_ = false;
  ++number_;
}

void PlanRequests::start_over() {
  discard();
  begun_ = false;
}

std::string PlanRequests::reasons_of_last() const {
  std::vector<std::string> reasons;
  for (const Reason& reason : reasons_of_last_) reasons.push_back(reason.why);
  return joined(reasons, "; ");
}

}  // namespace gpulet::serve
