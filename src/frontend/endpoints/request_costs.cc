#include "frontend/endpoints/request_costs.h"

#include "gpulet/core/bucket.h"
#include "gpulet/schedule/scaling.h"

namespace gpulet::frontend {
namespace {

struct Sum {
  double weighted_ms = 0;
  double weight = 0;
};

}  // namespace

void RequestCosts::follow(Epoch epoch, const schedule::Plan& plan) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  std::map<std::string, Sum> sums;
  for (const schedule::PlannedGpulet& planned : plan.gpulets) {
    const schedule::PlannedGpulet gpulet = without_spare(planned);
    for (const schedule::Assignment& one : gpulet.assignments) {
      const double batch = one.batch > 0 ? one.batch : 1;
      const double weight = one.rate > 0 ? one.rate : 1;  // instances promise no rate
      const auto add = [&](const std::string& model) {
        Sum& sum = sums[model];
        sum.weighted_ms += weight * one.latency_ms * gpulet.size.fraction() / batch;
        sum.weight += weight;
      };
      add(one.model);
      // A dynamic model costs the mean of its buckets.
      if (const std::string_view model = client_name(one.model); model != one.model)
        add(std::string(model));
    }
  }
  costs_.clear();
  for (const auto& [model, sum] : sums)
    costs_.emplace(model, from_ms(sum.weighted_ms / sum.weight));
}

Duration RequestCosts::of(std::string_view model) const {
  const auto found = costs_.find(model);
  return found == costs_.end() ? Duration::zero() : found->second;
}

}  // namespace gpulet::frontend
