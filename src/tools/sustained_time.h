// SustainedTime: what one batch costs a gpulet that has always one more to run, from the times
// between its answers. Values; one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/core/time.h"

namespace gpulet::tools {

// Batches are averaged over blocks of a given length (one batch, where it is that long), and the
// answer is the blocks' median, which a disturbance of the machine does not move. A batch shorter
// than a quota's slice mostly runs at full speed whatever the share is, and every few batches the
// process stands still for the rest of the period: the median of single batches would promise a
// 20 % gpulet the rate of a whole core.
class SustainedTime {
 public:
  explicit SustainedTime(Duration block) : block_(block) {}

  void add(Duration interval);

  [[nodiscard]] std::size_t batches() const { return intervals_ms_.size(); }
  [[nodiscard]] Duration total() const { return total_; }
  // REQUIRES: batches() is above 0, as for those below.
  [[nodiscard]] double median_ms() const;
  [[nodiscard]] double p99_ms() const;
  // How far the median may be off by chance, as a fraction of it: 1.57 interquartile ranges of the
  // blocks by the root of their number, which is the half width of its 95 % confidence interval
  // where blocks know nothing of one another. Infinite for fewer than three blocks.
  [[nodiscard]] double spread() const;

 private:
  [[nodiscard]] std::vector<double> sorted_blocks() const;

  Duration block_;
  std::vector<double> blocks_ms_;
  std::vector<double> intervals_ms_;
  Duration total_{};
  Duration under_way_{};  // of the block that is not full
  int batches_under_way_ = 0;
};

}  // namespace gpulet::tools
