// Elastic partitioning as the gpu-let preprint (section 4.3, algorithm 1) has it, before it became
// gpulet's. The choices the paper leaves open stand at the head of elastic_preprint.cc. Pure; any
// thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class ElasticPreprint final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic-preprint"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
