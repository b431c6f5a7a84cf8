// From a draft to the plan: every gpulet gets its duty cycle and batches (round.h), every device of
// the draft becomes a real one (placement.h), and every rate without a place gets its reason
// (explain.h). Pure.
#pragma once

#include <string_view>

#include "gpulet/schedule/plan.h"
#include "schedule/draft.h"

namespace gpulet::schedule {

[[nodiscard]] Plan finish(std::string_view policy, const Draft& draft);

}  // namespace gpulet::schedule
