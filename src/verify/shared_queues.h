// Simulates the queues of some gpulets request by request: the exact and slow way to predict
// violations. Batches leave by the dispatcher's own rules (batching/dispatch_policy.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::verify {

struct SharedQueue {  // of one model
  double rate = 0;    // requests per second, Poisson
  Duration objective{};
};

struct SharedSlot {
  std::size_t queue = 0;
  double rate = 0;                  // its planned part of the queue's, requests per second
  std::vector<Duration> execution;  // [n - 1]: what the dispatcher expects of a batch of n
  std::vector<double> alone_ms;     // [n - 1]: the mean without neighbours
  std::vector<double> cv;           // [n - 1]
};

struct SharedGpulet {
  std::size_t device = 0;
  Duration duty_cycle{};
  std::vector<SharedSlot> slots;
};

struct RunningBatch {
  std::size_t gpulet = 0;
  std::size_t slot = 0;
  std::uint32_t count = 0;
};

struct SharedQueues {
  std::vector<SharedQueue> queues;
  std::vector<SharedGpulet> gpulets;
  // The slowdown of the first batch by the second one, of another gpulet of the device. Empty:
  // none.
  std::function<double(const RunningBatch&, const RunningBatch&)> slowdown;
};

// The part of the queue's requests that are late or given up, over `requests` arrivals of all
// queues, or fewer once it is clear on which side of `limit` it is. The same for the same arguments
// on every machine. REQUIRES: every queue has a slot, every slot a batch.
[[nodiscard]] double simulate_late(const SharedQueues& queues, std::size_t queue,
                                   std::size_t requests, std::uint64_t seed,
                                   const std::optional<double>& limit);

}  // namespace gpulet::verify
