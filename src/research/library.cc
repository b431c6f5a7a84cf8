// What a program with the research library has.
#include "gpulet/research/research.h"
#include "research/inss_model.h"
#include "research/learn/learned_policy.h"
#include "research/mig_baselines.h"
#include "research/names.h"
#include "research/policies.h"
#include "schedule/policies.h"

namespace gpulet::research {
namespace {

template <auto kAlgorithm>
schedule::Plan plan_mig_by(const schedule::PlanInput& input) {
  return schedule::plan_mig(input, kAlgorithm);
}

class FittedInss final : public profile::PairModel {
 public:
  explicit FittedInss(InssModel model) : model_(std::move(model)) {}

  [[nodiscard]] double slowdown(const Side& self, const Side& other) const override {
    return model_.slowdown(self, other);
  }
  [[nodiscard]] bool knows_neighbours() const override { return model_.knows_neighbours(); }

 private:
  InssModel model_;
};

}  // namespace

bool included() { return true; }

schedule::PolicyTable policies() {
  schedule::PolicyTable table = schedule::own_policies();
  table.add(kElasticBatchSearch, plan_elastic_batch_search);
  table.add(kIgniter, plan_igniter);
  table.add(kMigMix, plan_mig_by<fixed_mix>);
  table.add(kMigSmall, plan_mig_by<small_instances>);
  table.add(kMigWhole, plan_mig_by<whole_devices>);
  table.add_with_argument(kInss, "inss:FILE",
                          [](std::string_view file) { return learn::read_inss_policy(file); });
  return table;
}

profile::FitPairModel fit_pair_model() {
  return [](const profile::Profile& profile, std::span<const profile::PairSample* const> pairs)
             -> std::shared_ptr<const profile::PairModel> {
    return std::make_shared<const FittedInss>(fit_inss_to(profile, pairs));
  };
}

Result<InssReport> inss_report(const profile::Profile& profile, std::uint64_t seed) {
  const InssModel model = fit_inss(profile, seed);
  return InssReport{held_out_errors(model, profile), model.note(), cells_csv(model, profile)};
}

}  // namespace gpulet::research
