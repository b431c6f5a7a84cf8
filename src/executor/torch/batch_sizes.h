// The batch sizes that a GPU prepares, and when it may capture one beside the batches that it
// serves. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::executor {

// The usual sizes from 1 to max_batch: the powers of two and the means of neighbouring ones (1, 2,
// 3, 4, 6, 8, 12, ..), and max_batch.
[[nodiscard]] std::vector<std::uint32_t> sizes_to_prepare(std::uint32_t max_batch);

// Each size once, ascending.
struct BatchSizes {
  std::vector<std::uint32_t> first;  // before batches come; not empty
  std::vector<std::uint32_t> later;  // in the gaps between batches
};
// `planned`: the sizes that a plan uses; those outside 1..max_batch do not count. The usual sizes
// come later, or first if no size is planned.
[[nodiscard]] BatchSizes batch_sizes(std::span<const std::uint32_t> planned,
                                     std::uint32_t max_batch);

// CaptureGaps: captures run one at a time, while no batch is in flight. Where batches follow each
// other without a gap, one runs after each `longest_wait` all the same.
class CaptureGaps {
 public:
  explicit CaptureGaps(Duration longest_wait) : longest_wait_(longest_wait) {}

  void batch_begun() { ++in_flight_; }
  void batch_ended() { --in_flight_; }
  // Whether a capture may start. If so, it has started, and capture_ended() must follow.
  [[nodiscard]] bool start(Time now);
  void capture_ended(Time now);

 private:
  Duration longest_wait_;
  std::size_t in_flight_ = 0;
  bool capturing_ = false;
  Time waits_since_ = kNever;  // kNever: no capture was wanted so far
};

}  // namespace gpulet::executor
