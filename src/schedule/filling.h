// Plans for many models: every device but the last ones of a model is filled to its last request.
// Elastic's attempts place one gpulet after the other and leave a remainder on many devices; with
// many models those add up. Pure; one thread at a time.
#pragma once

#include "schedule/plan_builder.h"

namespace gpulet::schedule {

// Models come by ascending SLO, since models with similar ones share a gpulet best. Each first
// takes the spare capacity that earlier ones left, as much as fits; then whole devices, divided in
// the way that serves most of it; and with the rest it opens one more gpulet, which later models
// fill. Where gpulets slow each other down that is a whole device, elsewhere the least size.
[[nodiscard]] PlanBuilder fill_devices(PlanContext& context);

}  // namespace gpulet::schedule
