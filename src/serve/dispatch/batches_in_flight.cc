#include "serve/dispatch/batches_in_flight.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gpulet::serve {

Time BatchInFlight::next_answer_by() const {
  Time next = kNever;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!is_answered(i)) next = std::min(next, requests[i].answer_by());
  }
  return next;
}

void BatchesInFlight::add(BatchId id, BatchInFlight batch) {
  batch.answer_by = batch.next_answer_by();
  deadlines_.add(batch.answer_by, id);
  if (batch.model >= by_model_.size()) by_model_.resize(batch.model + 1);
  ++by_model_[batch.model];
  held_.emplace(id, std::move(batch));
}

BatchInFlight BatchesInFlight::take(BatchId id) {
  const auto found = held_.find(id);
  BatchInFlight batch = std::move(found->second);
  held_.erase(found);
  deadlines_.remove(batch.answer_by, id);
  --by_model_[batch.model];
  return batch;
}

const BatchInFlight* BatchesInFlight::find(BatchId id) const {
  const auto found = held_.find(id);
  return found == held_.end() ? nullptr : &found->second;
}

std::optional<BackendId> BatchesInFlight::holder_of(BatchId batch) const {
  const BatchInFlight* const held = find(batch);
  return held == nullptr ? std::nullopt : std::optional(held->backend);
}

std::vector<BatchId> BatchesInFlight::held_by(GpuletId gpulet) const {
  std::vector<BatchId> ids;
  for (const auto& [id, batch] : held_) {
    if (batch.gpulet == gpulet) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::set<GpuletId> BatchesInFlight::silent(Duration grace, Time now) const {
  constexpr std::int64_t kDurations = 8;  // more than a backend waits before it ends a process
  std::set<GpuletId> gpulets;
  for (const auto& [id, batch] : held_) {
    if (batch.predicted_end + std::max(grace, kDurations * batch.expected) < now)
      gpulets.insert(batch.gpulet);
  }
  return gpulets;
}

}  // namespace gpulet::serve
