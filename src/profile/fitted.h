// One kind of interference model with what it predicts from. Pure; any thread.
#pragma once

#include <cmath>
#include <optional>

#include "gpulet/profile/boosted_trees.h"
#include "gpulet/profile/inss_model.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/interference_fit.h"
#include "profile/measured_pairs.h"

namespace gpulet::profile {

// One of the two measured batches beside a batch.
struct MeasuredBatch {
  const BatchTraits* batch = nullptr;
  bool above = false;

  [[nodiscard]] const SoloTraits& solo() const { return above ? batch->above : batch->below; }
};

struct Fitted {
  InterferenceKind kind = InterferenceKind::none;
  LinearCoefficients linear{};           // linear
  std::optional<BoostedTrees> trees{};   // learned; of the logarithm of the slowdown
  bool utilization = false;              // learned
  std::optional<MeasuredPairs> pairs{};  // measured
  std::optional<InssModel> inss{};

  // Between 1 and a bound far above what any co-run costs, so that a wrong fit stays finite.
  [[nodiscard]] double slowdown(const MeasuredBatch& self, const MeasuredBatch& other) const;
};

// What `at(MeasuredBatch self, MeasuredBatch other)` says, linear between measured batches; 1 where
// one of the two is a stranger.
template <typename At>
[[nodiscard]] double between_measured(const BatchTraits& self, const BatchTraits& other,
                                      const At& at) {
  if (self.model == BatchTraits::kUnknown || other.model == BatchTraits::kUnknown) return 1;
  const auto beside = [&](bool above) {
    const double below = at(MeasuredBatch{&self, above}, MeasuredBatch{&other, false});
    if (other.part == 0) return below;
    return std::lerp(below, at(MeasuredBatch{&self, above}, MeasuredBatch{&other, true}),
                     other.part);
  };
  const double below = beside(false);
  return self.part == 0 ? below : std::lerp(below, beside(true), self.part);
}

}  // namespace gpulet::profile
