#include "simulate/shared_processor.h"

#include <algorithm>
#include <utility>

namespace gpulet::simulate {

void SharedProcessor::work_until(Time now) {
  const double passed_s = to_seconds(now - worked_until_);
  for (Batch& batch : batches_) batch.left = std::max(0.0, batch.left - passed_s / batch.whole_s);
  worked_until_ = now;
}

void SharedProcessor::divide() {
  const double part = cores_ / static_cast<double>(batches_.size());
  for (Batch& batch : batches_) batch.whole_s = to_seconds(batch.time_on(part));
}

void SharedProcessor::set_cores(double cores, Time now) {
  work_until(now);
  cores_ = cores;
  divide();
}

void SharedProcessor::add(std::uint64_t id, TimeOn time_on, Time now) {
  work_until(now);
  batches_.push_back({.id = id, .time_on = std::move(time_on), .began = now});
  divide();
}

Time SharedProcessor::next_end() const {
  Time next = kNever;
  for (const Batch& batch : batches_)
    next = std::min(next, worked_until_ + from_seconds(batch.left * batch.whole_s));
  return next;
}

SharedProcessor::Ended SharedProcessor::take_ended(Time now) {
  const auto first = std::min_element(
      batches_.begin(), batches_.end(),
      [](const Batch& a, const Batch& b) { return a.left * a.whole_s < b.left * b.whole_s; });
  const Ended ended{first->id, now - first->began};
  work_until(now);
  batches_.erase(first);
  divide();
  return ended;
}

}  // namespace gpulet::simulate
