// InSS' "BDA-Gpulet" (section 6.3): elastic partitioning with the batches of InSS' search. The
// choices the paper leaves open stand at the head of elastic_batch_search.cc. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class ElasticBatchSearch final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic-batch-search"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
