#include "gpulet/batching/decide.h"

#include <algorithm>

namespace gpulet::batching {

std::uint32_t largest_batch_by(std::span<const Duration> execution, std::uint32_t wanted,
                               Time start, Time deadline) {
  std::uint32_t count = std::max<std::uint32_t>(1, wanted);
  while (count > 1 && start + execution[count - 1] > deadline) --count;
  return count;
}

Decision decide(const LaneView& lane, Time now) {
  if (lane.waiting == 0) return WaitUntil{kNever};
  const std::size_t largest = lane.execution.size();
  const auto count = static_cast<std::uint32_t>(std::min(lane.waiting, largest));
  const bool full = lane.waiting >= largest;
  const Time latest = lane.most_urgent - lane.execution[count - 1] - lane.allowance;
  if (!full && now < lane.turn && now < latest) return WaitUntil{std::min(lane.turn, latest)};
  return Dispatch{
      largest_batch_by(lane.execution, count, lane.start + lane.allowance, lane.most_urgent)};
}

}  // namespace gpulet::batching
