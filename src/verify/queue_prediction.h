// Predicts the violations of one model of a plan by simulating its queue (shared_queues.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "gpulet/schedule/policy.h"
#include "verify/shared_queues.h"

namespace gpulet::verify {

// All gpulets of that device and of up to three others: those on which the model has one, then
// those that serve most of another model of the device. More would hardly change the result: the
// more gpulets share a queue, the fewer requests are late.
[[nodiscard]] std::vector<const schedule::PlannedGpulet*> gpulets_around(
    const schedule::Plan& plan, std::string_view model, const schedule::DeviceKey& device);

struct AskedModel {
  std::string_view name;
  double expected = 0;  // the part of its requests that is late by another prediction
};

struct SimulationLength {
  // Simulations end where it is clear on which side of it their results are.
  std::optional<double> limit{};
  double effort = 1;  // the part of the usual number of requests
};

struct SimulatedViolations {
  // Parallel to the models. Empty where a profile lacks a batch, or where a gpulet has no rounds,
  // processes that take turns, or more models than can be simulated in time.
  std::vector<std::optional<LatePart>> late;
  std::size_t requests = 0;  // that were simulated
};

// How many of each model's requests are late or given up: its gpulets among these take from one
// queue, beside the models that share them and beside the other gpulets of their devices. What all
// these models do elsewhere is left out. Takes up to 100 ms, mostly a tenth of that where it only
// has to be clear on which side of a limit the results are.
[[nodiscard]] SimulatedViolations simulate_violations(
    const schedule::Plan& plan, const schedule::PlanInput& input,
    const std::vector<const schedule::PlannedGpulet*>& gpulets,
    const std::vector<AskedModel>& models, const SimulationLength& length);

}  // namespace gpulet::verify
