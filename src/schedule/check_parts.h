// The parts of check() that look at one gpulet or one device: MIG's rules, instances without
// rounds, and random arrivals. They share no code with the policies, as check.h promises. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/schedule/check.h"

namespace gpulet::schedule {

// `values` with that cause and that gpulet, or that model in it.
[[nodiscard]] Violation violation_of(const PlannedGpulet& gpulet, ViolationCause cause,
                                     Violation values = {});
[[nodiscard]] Violation violation_of(const PlannedGpulet& gpulet, const Assignment& assignment,
                                     ViolationCause cause, Violation values = {});

// Violations of MIG's rules by the gpulets of one device. `profile` is that of the device's type;
// null: it has none.
[[nodiscard]] std::vector<Violation> check_mig(const Device& device,
                                               const std::vector<const PlannedGpulet*>& gpulets,
                                               const profile::Profile* profile);

// Violations by one gpulet without rounds (Service).
[[nodiscard]] std::vector<Violation> check_service(const Device& device,
                                                   const PlannedGpulet& gpulet,
                                                   const profile::Profile* profile,
                                                   const std::optional<double>& asked_margin);

// Violations by the gpulets without rounds of the device together.
[[nodiscard]] std::vector<Violation> check_services(
    const Device& device, const std::vector<const PlannedGpulet*>& gpulets);

// A model of a gpulet with random arrivals, and its latencies in the gpulet's processes, which are
// known for the planned batch.
struct MeasuredAssignment {
  const Assignment& assignment;
  const profile::LatencyTable& latency;
  std::uint32_t max_batch = 1;  // of the demand
};

// A batch that does not hold the requests of its cycle.
struct OverfullBatch {
  std::size_t at = 0;   // of the assignment
  double cycle_ms = 0;  // from one batch of the model to the next
  double arrivals = 0;  // mean requests in a cycle
  double held = 0;      // mean requests that the batch holds with few late requests
};

// The batches of a gpulet of which more than kMostLateByChance of the requests are late by chance.
// A cycle of a model consists of its own full batch and of the mean batches that the cycle brings
// of the other models. `turns`: the processes that take batches from one queue.
[[nodiscard]] std::vector<OverfullBatch> overfull_batches(
    const std::vector<MeasuredAssignment>& assignments, Share size,
    const std::optional<double>& margin, std::uint32_t turns);

}  // namespace gpulet::schedule
