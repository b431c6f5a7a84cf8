#include "bench/serve/support/capacity.h"

#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/scaling.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::bench {

class Capacity::Impl {
 public:
  explicit Impl(const SiteOptions& site)
      : models_(site.models),
        profile_(profile_of(site)),
        profiles_{{profile_.name, profile_}},
        policy_(schedule::make_policy("elastic").value()),
        cluster_(schedule::cluster_from(nodes_of(site))) {}

  [[nodiscard]] schedule::Plan plan(const std::vector<double>& rates) const {
    schedule::PlanInput input;
    input.cluster = cluster_;
    input.profiles = &profiles_;
    const serve::FrontendOptions defaults;
    input.options.margin = defaults.margin;
    input.options.headroom = defaults.headroom;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (rates[i] > 0)
        input.demands.push_back(
            {models_[i].name, rates[i], models_[i].slo_ms, models_[i].max_batch});
    }
    return schedule::scale(*policy_, input).plan;
  }

  [[nodiscard]] bool serves(double scale) const {
    std::vector<double> rates;
    for (const SiteModel& model : models_) rates.push_back(model.rate * scale);
    return plan(rates).schedulable();
  }

 private:
  std::vector<SiteModel> models_;
  profile::Profile profile_;
  profile::ProfileSet profiles_;
  std::unique_ptr<schedule::Policy> policy_;
  schedule::Cluster cluster_;
};

Capacity::Capacity(const SiteOptions& site) : impl_(std::make_unique<Impl>(site)) {}
Capacity::~Capacity() = default;

double Capacity::schedulable_scale() const {
  double low = 0;
  double high = 1;
  while (impl_->serves(high)) high *= 2;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (impl_->serves(middle) ? low : high) = middle;
  }
  return low;
}

std::optional<std::uint32_t> Capacity::devices_for(const std::vector<double>& rates) const {
  const schedule::Plan plan = impl_->plan(rates);
  if (!plan.schedulable()) return std::nullopt;
  return plan.devices_used();
}

}  // namespace gpulet::bench
