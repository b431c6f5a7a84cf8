// elastic-batch-search: InSS, section 6.3.
//
// Elastic partitioning decides devices, sizes and rates, and the batch search (batch_search.h) the
// batches. The paper applies its search to gpulet without further detail.
//
// Choices where the paper leaves one:
//  - As in InSS, section 5.5, a change of rates is first met by other batches in the present
//    gpulets (keep_placement). Elastic plans only where that does not serve everything.
//  - Models that share a gpulet get their largest batches one after the other, by name, as long as
//    their common round holds.
//  - Rates that elastic leaves unserved stay unserved: the search changes no rates.
#include <optional>
#include <utility>
#include <vector>

#include "research/batch_search.h"
#include "research/policies.h"
#include "schedule/batch_planner.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

std::vector<PlacedGpulet> placed_gpulets(const PlanBuilder& builder) {
  const std::vector<std::uint32_t> real = assign_devices(builder);
  std::vector<PlacedGpulet> gpulets;
  gpulets.reserve(builder.gpulets().size());
  for (const BuilderGpulet& built : builder.gpulets()) {
    if (built.slots.empty()) continue;
    PlacedGpulet& gpulet = gpulets.emplace_back();
    gpulet.device = real[built.device];
    gpulet.device_class = builder.devices()[built.device].device_class;
    gpulet.size = built.size;
    for (const BatchSlot& slot : built.slots) gpulet.models.push_back({slot.model, slot.rate});
  }
  return gpulets;
}

}  // namespace

Plan ElasticBatchSearch::plan(const PlanInput& input) {
  if (std::optional<Plan> kept = keep_placement(input)) return *std::move(kept);
  PlanContext context(input);
  BatchPlanner planner(context, placed_gpulets(build_elastic(context)));
  planner.plan_min_batches();
  planner.grow_batches();
  return planner.finish([&](std::size_t model, double unserved, std::size_t devices_used) {
    return explain_unserved(context, model, unserved, devices_used);
  });
}

}  // namespace gpulet::research
