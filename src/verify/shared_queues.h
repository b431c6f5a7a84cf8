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

// The part of a queue's requests that are late or given up.
struct LatePart {
  double mean = 0;
  double bad_minute = 0;  // compared with kMostLateInBadMinute
};

struct AskedQueue {
  std::size_t queue = 0;
  std::size_t requests = 0;  // over so many arrivals of all queues
  double expected = 0;       // the part that is late by another prediction
};

struct LateParts {
  std::vector<LatePart> parts;  // parallel to the asked queues
  std::size_t requests = 0;     // that were simulated
};

// Over fewer requests once it is clear that the mean is on that side of `limit` where it is
// expected, and no minute is bad: bursts may be so rare that none comes for long. What is asked of
// one queue changes nothing for the others. The same for the same arguments on every machine.
// REQUIRES: every queue has a slot, every slot a batch.
[[nodiscard]] LateParts simulate_late(const SharedQueues& queues,
                                      const std::vector<AskedQueue>& asked, std::uint64_t seed,
                                      const std::optional<double>& limit);

}  // namespace gpulet::verify
