// Squishy bin packing (Nexus; gpulet, section 2.2): models take turns on whole devices, or on equal
// parts of them. The choices the paper leaves open stand at the head of sbp.cc. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/schedule/policy.h"
#include "schedule/draft.h"

namespace gpulet::schedule {

// What devices of a class are divided into: `parts` gpulets of one size (an index).
struct EqualParts {
  std::uint32_t size = 0;
  std::uint32_t parts = 1;
};

// Every device as one gpulet of the largest size that it lists.
[[nodiscard]] std::vector<EqualParts> whole_devices(const Problem& problem);

// The packing itself. `division` stands beside the problem's classes.
[[nodiscard]] Draft pack(Problem& problem, const std::vector<EqualParts>& division);

// On whole devices.
class SquishyBinPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sbp"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
