// All policies, and the parts of them that other policies use. Each policy's source file begins
// with what the paper leaves open and what was chosen. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpulet/schedule/policy.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// ---- elastic.cc

// Elastic partitioning (gpulet, section 4.3, algorithm 1): gpulets of the most effective size, best
// fit, then temporal merging.
class ElasticPartitioning final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Elastic partitioning as in the gpu-let preprint (section 4.3, algorithm 1).
class ElasticPreprint final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic-preprint"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// InSS's "BDA-Gpulet" (section 6.3): elastic partitioning with the batches of InSS's search.
class ElasticBatchSearch final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "elastic-batch-search"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// The best of all attempts that elastic makes without a plan in force.
[[nodiscard]] PlanBuilder elastic_partitioning(PlanContext& context);

// ---- sbp.cc

// Squishy bin packing (Nexus; gpulet, section 2.2): models share whole devices in rounds.
class SquishyBinPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sbp"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Squishy bin packing on devices that are split 1:1 (gpulet, section 3.2).
class SplitSquishyBinPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sbp-split"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Devices of a class are divided into `parts` gpulets of one size (an index).
struct EqualParts {
  std::uint32_t size = 0;
  std::uint32_t parts = 1;
};

// Every device as one gpulet of its largest size, parallel to the context's classes.
[[nodiscard]] std::vector<EqualParts> whole_devices(const PlanContext& context);

// The packing. `division` is parallel to the context's classes.
[[nodiscard]] PlanBuilder pack(PlanContext& context, const std::vector<EqualParts>& division);

// ---- spatial_baselines.cc: no model shares a gpulet

// Greedy best fit (gpulet, section 2.3).
class GreedyBestFit final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "greedy-best-fit"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Guided self-tuning (gpu-let preprint, section 6.1, after GSLICE).
class GuidedSelfTuning final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "guided-self-tuning"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// iGniter (Xu et al., IEEE TPDS 2022), as InSS compares itself with it (sections 6.1 and 7): the
// least share for every model, placed where it costs its neighbours the least.
class Igniter final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "igniter"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// ---- ideal.cc

// The ideal scheduler (gpulet, section 5.2): tries all combinations of partitionings.
class Ideal final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "ideal"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// Whether the cluster is small enough for the search. Where it is not, `ideal` equals `elastic`.
[[nodiscard]] bool ideal_searches(const PlanContext& context);

// ---- cover/cover.cc

// This project's own policy: the fewest device fillings that cover the demand, with a lower bound
// (docs/cover.md).
class CoverPolicy final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "cover"; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

// ---- roma.cc

// Instances on all devices, whatever the demand (ROMA, section 2.2; Service::by_need and
// Service::controlled). The dispatcher and the controllers do the rest at run time.
class Roma final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "roma"; }
  [[nodiscard]] bool scales() const override { return false; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override;
};

}  // namespace gpulet::schedule
