// The times of a model's batches in a gpulet, as the profile has them and as the dispatcher reckons
// with them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::verify {

struct BatchTimes {
  std::vector<double> alone_ms;     // [n - 1]: the mean time of a batch alone
  std::vector<double> expected_ms;  // [n - 1]: with the plan's slowdown and margin; never falls
  std::vector<double> cv;           // [n - 1]
};

// Empty where the profile lacks a batch, or the assignment is none. `processes`: of the model in
// the gpulet's MIG instance.
[[nodiscard]] std::optional<BatchTimes> batch_times(const schedule::Assignment& assignment,
                                                    Share size, std::uint32_t processes,
                                                    const std::optional<double>& asked_margin,
                                                    const profile::Profile& profile);

}  // namespace gpulet::verify
