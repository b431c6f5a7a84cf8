#include "gpulet/serve/request_costs.h"

namespace gpulet::serve {
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
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    for (const schedule::Assignment& one : gpulet.assignments) {
      const double batch = one.batch > 0 ? one.batch : 1;
      const double weight = one.rate > 0 ? one.rate : 1;  // executables promise no rate
      Sum& sum = sums[one.model];
      sum.weighted_ms += weight * one.latency_ms * gpulet.size.fraction() / batch;
      sum.weight += weight;
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

}  // namespace gpulet::serve
