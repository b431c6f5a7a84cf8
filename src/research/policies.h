// The policies of this library as functions. Each one's source file begins with the choices that
// the paper leaves open. They leave Plan::policy empty. REQUIRES for all: validate(input) is ok.
// Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::research {

// InSS's "BDA-Gpulet" (section 6.3): elastic partitioning with the batches of InSS's search.
[[nodiscard]] schedule::Plan plan_elastic_batch_search(const schedule::PlanInput& input);

// iGniter (Xu et al., IEEE TPDS 2022), as InSS compares itself with it (sections 6.1 and 7): the
// least share for every model, placed where it costs its neighbours the least.
[[nodiscard]] schedule::Plan plan_igniter(const schedule::PlanInput& input);

}  // namespace gpulet::research
