#include "gpulet/batching/waiting_requests.h"

#include <utility>

namespace gpulet::batching {

bool WaitingRequests::set_rules(const std::optional<QueueRules>& rules) {
  const bool same = rules ? levels_ && levels_->rules() == *rules : !levels_;
  if (same) return false;
  std::vector<Request> waiting = take_all();
  levels_ = rules ? std::make_unique<LevelQueue>(*rules) : nullptr;
  for (Request& request : waiting) push(std::move(request));
  return true;
}

}  // namespace gpulet::batching
