#include "gpulet/serve/responses.h"

#include <utility>

namespace gpulet::serve {

void Responses::record(Duration response, Where where, Time now) {
  const double seconds = to_seconds(response);
  const std::int64_t number = slot_of(now);
  Slot& slot = slots_[static_cast<std::size_t>(number % kSlots)];
  if (slot.number != number) slot = {number, 0, 0};
  ++slot.count;
  slot.sum_s += seconds;
  period_.histogram.record(response);
  if (where == Where::gpu) {
    ++period_.on_gpu;
    period_.gpu_s += seconds;
    return;
  }
  ++(where == Where::cpu ? period_.on_cpu : period_.dropped);
  period_.rest_s += seconds;
  period_.rest_histogram.record(response);
}

std::optional<Duration> Responses::recent_mean(Time now) const {
  const std::int64_t oldest = slot_of(now) - kSlots + 1;
  std::uint64_t count = 0;
  double sum_s = 0;
  for (const Slot& slot : slots_) {
    if (slot.number < oldest) continue;
    count += slot.count;
    sum_s += slot.sum_s;
  }
  if (count == 0) return std::nullopt;
  return from_seconds(sum_s / static_cast<double>(count));
}

Responses::Period Responses::take_period() { return std::exchange(period_, {}); }

}  // namespace gpulet::serve
