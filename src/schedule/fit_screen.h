// A screen before PlanBuilder::fits, for searches that ask every gpulet. With random arrivals a
// test takes microseconds, and nearly all gpulets refuse. The screen sees the models of the gpulet
// and the newcomer as a constant load to each other, which disturbs less than batches now and then.
// So it refuses most of what fits() refuses, by a few numbers that it keeps for each gpulet.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "schedule/plan_builder.h"

namespace gpulet::schedule {

// The least batches of some slots.
struct LeastBatches {
  double busy_ms = 0;     // the sum; infinite where a slot has no batch
  double longest_ms = 0;  // the longest round within all SLOs
};

class FitScreen {
 public:
  // `builder` outlives the object.
  explicit FitScreen(const PlanBuilder& builder) : builder_(&builder) {}

  // Whether it is worth asking if the gpulet can take `rate` of the model, which it does not serve
  // yet. Always true without random arrivals.
  [[nodiscard]] bool may_fit(std::size_t gpulet, std::size_t model, double rate);

 private:
  // The least batches beside a constant load, computed on first use.
  class BesideLoad {
   public:
    // Those of the greatest known load that is not above this one.
    [[nodiscard]] const LeastBatches& at(double load, std::span<const BatchSlot> slots);

   private:
    static constexpr std::size_t kLevels = 64;
    std::array<std::optional<LeastBatches>, kLevels> levels_;
  };
  struct Gpulet {
    std::size_t slots = 0;
    double load = 0;
    BesideLoad batches;
  };
  struct Newcomer {
    const LatencyCurve* curve = nullptr;
    double rate = 0;
    BesideLoad batches;
  };

  BesideLoad& batches_of(std::size_t gpulet);
  BesideLoad& batches_of(const BatchSlot& newcomer);

  const PlanBuilder* builder_;
  std::vector<Gpulet> gpulets_;  // parallel to the builder's
  Newcomer newcomer_;            // the last one
};

}  // namespace gpulet::schedule
