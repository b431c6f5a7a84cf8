// CheckSchedule: when a gpulet is to be restarted, and when its process takes too long. Pure; one
// thread at a time.
#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "node/node_files.h"

namespace gpulet::node {

class CheckSchedule {
 public:
  // All outlive it.
  CheckSchedule(const BackendCoreOptions& options, const NodeDevices& devices,
                const NodeFiles& files, HostedGpulets& gpulets)
      : options_(options), devices_(devices), files_(files), gpulets_(gpulets) {}

  // When the gpulet is to be checked.
  [[nodiscard]] Time next_check(const HostedGpulet& gpulet) const;
  [[nodiscard]] Duration load_bound_of(const HostedGpulet& gpulet) const;
  // REQUIRES: it holds batches.
  [[nodiscard]] Time hung_at(const HostedGpulet& gpulet) const;

  // Call it whenever next_check() may have become earlier.
  void schedule(HostedGpulet& gpulet);
  // Takes the next gpulet to check at that time. Null: none.
  [[nodiscard]] HostedGpulet* take_due(Time now);
  // Makes the top of the queue a check that is still due, by postponing others.
  void drop_stale();
  // Of the top of the queue; kNever: it is empty.
  [[nodiscard]] Time next() const { return checks_.empty() ? kNever : checks_.top().first; }

 private:
  const BackendCoreOptions& options_;
  const NodeDevices& devices_;
  const NodeFiles& files_;
  HostedGpulets& gpulets_;
  using Check = std::pair<Time, GpuletId>;
  std::priority_queue<Check, std::vector<Check>, std::greater<>> checks_;
};

}  // namespace gpulet::node
