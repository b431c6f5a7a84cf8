// What a program with the research library has.
#include "gpulet/research/research.h"
#include "research/inss_model.h"
#include "research/learn/learned_policy.h"
#include "research/policies.h"

namespace gpulet::research {
namespace {

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
  OwnPolicies::for_each(
      [&table](auto policy) { table.add(policy.kName, policy.plan, policy.kTraits); });
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
