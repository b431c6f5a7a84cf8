#include "executor/torch/batch_sizes.h"

#include <algorithm>
#include <iterator>

namespace gpulet::executor {

std::vector<std::uint32_t> sizes_to_prepare(std::uint32_t max_batch) {
  std::vector<std::uint32_t> sizes;
  for (std::uint64_t power = 1; power < max_batch; power *= 2) {
    sizes.push_back(static_cast<std::uint32_t>(power));
    const std::uint64_t mean = power + power / 2;
    if (power > 1 && mean < max_batch) sizes.push_back(static_cast<std::uint32_t>(mean));
  }
  sizes.push_back(max_batch);
  return sizes;
}

BatchSizes batch_sizes(std::span<const std::uint32_t> planned, std::uint32_t max_batch) {
  BatchSizes sizes;
  for (const std::uint32_t size : planned) {
    if (size >= 1 && size <= max_batch) sizes.first.push_back(size);
  }
  std::sort(sizes.first.begin(), sizes.first.end());
  sizes.first.erase(std::unique(sizes.first.begin(), sizes.first.end()), sizes.first.end());
  const std::vector<std::uint32_t> usual = sizes_to_prepare(max_batch);
  if (sizes.first.empty()) return {.first = usual, .later = {}};
  std::set_difference(usual.begin(), usual.end(), sizes.first.begin(), sizes.first.end(),
                      std::back_inserter(sizes.later));
  return sizes;
}

bool CaptureGaps::start(Time now) {
  if (capturing_) return false;
  if (waits_since_ == kNever) waits_since_ = now;
  if (in_flight_ > 0 && now - waits_since_ < longest_wait_) return false;
  capturing_ = true;
  return true;
}

void CaptureGaps::capture_ended(Time now) {
  capturing_ = false;
  waits_since_ = now;
}

}  // namespace gpulet::executor
