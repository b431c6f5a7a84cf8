// Plans for many models where gpulets slow each other down: whole devices only, with as few devices
// as possible for the rests. Each model first fills devices by itself; its rest is what remains.
// Which rests share a device is a set packing, solved as a linear program over sets of up to three
// rests and rounded. Then the devices with the smallest single rests are given up, as long as the
// spare capacity of the others takes them. Deterministic; one thread at a time.
#pragma once

#include <cstdint>

#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// Whether rests can be packed: the devices are alike, and not divided by MIG.
[[nodiscard]] bool can_pack_rests(const PlanContext& context);

// At most this many tests of rounds: few for each pair of models.
[[nodiscard]] std::uint64_t tests_of_packing(const PlanContext& context);

// Leaves demand unplaced where there are too few devices, or a model that none serves. REQUIRES:
// can_pack_rests(context).
[[nodiscard]] PlanBuilder pack_rests(PlanContext& context);

}  // namespace gpulet::schedule
