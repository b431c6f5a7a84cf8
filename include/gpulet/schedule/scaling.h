// How many devices a plan may use: the scaling loop of gpulet (ATC 2022), section 4.5, algorithm 2,
// around any policy. It starts from the devices in use, adds as few as serve the demand, and
// reports what stays unserved at the limit. The paper adds one at a time; here steps grow and are
// then halved back. The paper only adds; this loop also gives devices back, with a reserve that
// keeps a demand on the edge from moving one to and fro. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

struct ScalingOptions {
  // Devices that the plan in force may use; nothing: those that input.current uses, 0 without one.
  std::optional<std::uint32_t> in_use;
  // A device is given back only where the others would serve this many times the demand: at least
  // 1. At 1 a device goes as soon as the demand falls below what needs it, and comes back with the
  // next request more.
  double give_back_reserve = 1.1;
  // Never fewer devices than this.
  std::uint32_t least = 0;
};

struct ScalingResult {
  Plan plan;                  // for the demand itself
  std::uint32_t devices = 0;  // that the plan may use, and the next round's in_use
  std::int64_t added = 0;     // devices beyond those in use; negative: given back
};

// The limit is input.options.max_devices, else the whole cluster. `plan.unserved` not being empty
// is the paper's unschedulable event: everything up to the limit was tried, and the plan is the one
// at the limit. A demand that no number of devices serves (no profile, an SLO out of reach) ends
// there as well. REQUIRES: validate(input) is ok.
[[nodiscard]] ScalingResult scale(const Policy& policy, const PlanInput& input,
                                  const ScalingOptions& options = {});

}  // namespace gpulet::schedule
