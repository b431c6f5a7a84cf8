#include "profile/fitted.h"

#include <algorithm>
#include <cmath>

#include "profile/interference_features.h"

namespace gpulet::profile {
namespace {

constexpr double kMostSlowdown = 1000;

double evaluate(const LinearCoefficients& fit, const SoloTraits& self, const SoloTraits& other) {
  return fit.l2_self * self.l2 + fit.l2_other * other.l2 + fit.dram_self * self.dram +
         fit.dram_other * other.dram + fit.constant;
}

InssModel::Side inss_side(const MeasuredBatch& batch) {
  return {.model = batch.batch->model,
          .batch = std::exp2(batch.solo().log2_batch),
          .share = batch.solo().share};
}

}  // namespace

double Fitted::slowdown(const MeasuredBatch& self, const MeasuredBatch& other) const {
  double slowdown = 1;
  switch (kind) {
    case InterferenceKind::none:
      break;
    case InterferenceKind::linear:
      slowdown = evaluate(linear, self.solo(), other.solo());
      break;
    case InterferenceKind::learned:
      slowdown = std::exp(trees->predict(features_of(self.solo(), other.solo(), utilization)));
      break;
    case InterferenceKind::measured:
      slowdown =
          pairs->slowdown({self.batch->model, self.solo().log2_batch, self.batch->log2_percent},
                          {other.batch->model, other.solo().log2_batch, other.batch->log2_percent});
      break;
    case InterferenceKind::inss:
      slowdown = inss->slowdown(inss_side(self), inss_side(other));
      break;
  }
  return std::clamp(slowdown, 1.0, kMostSlowdown);
}

}  // namespace gpulet::profile
