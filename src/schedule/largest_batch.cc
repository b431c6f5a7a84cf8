#include "schedule/largest_batch.h"

#include <algorithm>
#include <limits>

namespace gpulet::schedule {

double task_latency_ms(const QueuedTask& task) {
  if (task.queued >= task.batch) {
    const std::uint32_t batches = (task.queued + task.batch - 1) / task.batch;
    return task.remaining_ms + batches * task.execution_ms;
  }
  const double until_full_ms = task.rate > 0 ? 1000.0 * (task.batch - task.queued) / task.rate
                                             : std::numeric_limits<double>::infinity();
  return std::max(task.remaining_ms, until_full_ms) + task.execution_ms;
}

}  // namespace gpulet::schedule
