// Elastic partitioning decides where models run, in how large a share and at which rates; the batch
// search (batch_search.h) decides the batches. InSS section 6.3 applies its search to gpulet and
// says no more than that.
//
// Choices where the paper leaves one:
//  - As in InSS section 5.5 a change of rates is first met by other batches where the gpulets are
//    (keep_placement), and only where that does not serve everything is elastic asked.
//  - Models that share a gpulet each get their largest batch in turn, by name, as long as the round
//    of all of them holds.
//  - What elastic leaves unserved stays so: the search changes no rates.
#include "schedule/elastic_batch_search.h"

#include <utility>
#include <vector>

#include "gpulet/schedule/batch_search.h"
#include "schedule/elastic.h"
#include "schedule/explain.h"
#include "schedule/placed_plan.h"
#include "schedule/placement.h"

namespace gpulet::schedule {
namespace {

std::vector<PlacedGpulet> placed(const Draft& draft) {
  const std::vector<std::uint32_t> real = place(draft);
  std::vector<PlacedGpulet> gpulets;
  gpulets.reserve(draft.gpulets().size());
  for (const DraftGpulet& drafted : draft.gpulets()) {
    if (drafted.turns.empty()) continue;
    PlacedGpulet& gpulet = gpulets.emplace_back();
    gpulet.device = real[drafted.device];
    gpulet.device_class = draft.devices()[drafted.device].device_class;
    gpulet.size = drafted.size;
    for (const Turn& turn : drafted.turns) gpulet.turns.push_back({turn.model, turn.rate});
  }
  return gpulets;
}

}  // namespace

Plan ElasticBatchSearch::plan(const PlanInput& input) const {
  std::optional<Plan> plan = keep_placement(input);
  if (!plan) {
    Problem problem(input);
    SlowdownTables tables(problem);
    PlacedPlan searched(problem, tables, placed(elastic_draft(problem)));
    searched.settle();
    searched.grow();
    plan = searched.finish([&](std::size_t model, double left, std::size_t devices_used) {
      return explain_unserved(problem, model, left, devices_used);
    });
  }
  plan->policy = name();
  return *std::move(plan);
}

}  // namespace gpulet::schedule
