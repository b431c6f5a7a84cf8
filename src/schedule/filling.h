// Plans for many models: fills one device after another. Elastic's attempts place one gpulet at a
// time and leave a remainder on many devices, and with many models these remainders add up. Pure;
// one thread at a time.
#pragma once

#include "schedule/plan_builder.h"

namespace gpulet::schedule {

// Models come by ascending SLO, because those with similar SLOs share a gpulet best. Each model
// first takes the spare capacity of earlier gpulets; then whole devices, divided in the way that
// serves the highest rate; then a gpulet for its rest, whose spare capacity later models take. That
// gpulet has the least size or, where gpulets slow each other down, the size that serves most.
[[nodiscard]] PlanBuilder fill_devices(PlanContext& context);

}  // namespace gpulet::schedule
