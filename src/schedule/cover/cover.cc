// Cover: choose the fewest ways to fill a device that together serve the demand.
//
//  1. The relaxation prices gpulet time of every size and gives a lower bound on the devices
//     (relaxation.h).
//  2. The plans of the other policies are the first candidates, so that none of them serves what
//     this one does not, or on fewer devices. Only `ideal` comes last, where all else left demand
//     without a place that the bound does not rule out: it may take longer than the rest together.
//     (Where it need not search, its plan is elastic's.)
//  3. Device by device the search takes fillings that waste least at those prices
//     (device_choices.h), with more and more alternatives, until a cover meets the bound or the
//     work is spent. Work is counted in turns and rows looked at, not in time: the same input
//     always gives the same plan.
//
// A plan that meets the bound is optimal; the bound itself counts as the planner does, with
// latencies that never fall as a batch grows.
#include "schedule/cover/cover.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/cover/filled_device.h"
#include "schedule/cover/relaxation.h"
#include "schedule/cover/search.h"
#include "schedule/elastic.h"
#include "schedule/elastic_preprint.h"
#include "schedule/finish.h"
#include "schedule/greedy_best_fit.h"
#include "schedule/guided_self_tuning.h"
#include "schedule/ideal.h"
#include "schedule/mig/mig_policy.h"
#include "schedule/sbp.h"
#include "schedule/sbp_split.h"

namespace gpulet::schedule {
namespace {

// What the relaxation's sums may be off by.
constexpr double kRounding = 1e-6;

// One device after the other, without alternatives: near linear in the devices, so never cut short.
constexpr SearchEffort kDive{{2, 2}, 1, 1, 0};
// Each where the ones before have not reached the bound. The last two end in any case, on small
// clusters with a cover more often than not.
constexpr std::array kWider{SearchEffort{{4, 6}, 1, 1, 0}, SearchEffort{{3, 4}, 4, 25, 20000},
                            SearchEffort{{4, 6}, 12, 150, 120000}};

// Plans are compared by what they leave unserved, then by devices.
struct Candidate {
  Plan plan;
  double unserved = 0;  // sum over models of the part of each
  std::size_t devices = 0;

  [[nodiscard]] bool better_than(const Candidate& other) const {
    if (std::abs(unserved - other.unserved) > kRoundingSlack) return unserved < other.unserved;
    return devices < other.devices;
  }
};

class Covering {
 public:
  explicit Covering(const PlanInput& input)
      : input_(input), problem_(input, Division::either), relaxation_(problem_) {
    for (const ModelDemand* demand : problem_.models()) rates_.push_back(demand->rate);
    relaxation_.price(rates_);
    at_least_ = whole_devices(relaxation_.bound(rates_));
  }

  Plan run() {
    best_ = candidate_of(ElasticPartitioning().plan(input_));
    if (may_improve() && has_mig()) consider(MigTwoPhase().plan(input_));
    if (may_improve()) {
      consider(SquishyBinPacking().plan(input_));
      consider(SplitSquishyBinPacking().plan(input_));
      consider(ElasticPreprint().plan(input_));
      consider(GreedyBestFit().plan(input_));
      consider(GuidedSelfTuning().plan(input_));
      search();
      if (!best_->plan.schedulable() && possible() && !has_mig() && ideal_searches(problem_)) {
        consider(Ideal().plan(input_));
      }
    }
    return explained();
  }

 private:
  [[nodiscard]] static std::size_t whole_devices(double devices) {
    return static_cast<std::size_t>(std::max(0.0, std::ceil(devices - kRounding)));
  }

  [[nodiscard]] Candidate candidate_of(Plan plan) const {
    Candidate candidate;
    for (const Unserved& one : plan.unserved) {
      const auto demand = std::lower_bound(
          problem_.models().begin(), problem_.models().end(), one.model,
          [](const ModelDemand* known, const std::string& name) { return known->name < name; });
      candidate.unserved += one.rate / (*demand)->rate;
    }
    candidate.devices = plan.devices_used();
    candidate.plan = std::move(plan);
    return candidate;
  }

  void consider(Plan plan) {
    Candidate candidate = candidate_of(std::move(plan));
    if (candidate.better_than(*best_)) best_ = std::move(candidate);
  }

  [[nodiscard]] bool has_mig() const {
    return std::any_of(problem_.classes().begin(), problem_.classes().end(),
                       [](const DeviceClass& known) { return known.example->mig.has_value(); });
  }

  [[nodiscard]] bool may_improve() const {
    return !best_->plan.schedulable() || best_->devices > at_least_;
  }

  // Whether the bound leaves hope for a plan that serves everything.
  [[nodiscard]] bool possible() const { return at_least_ <= problem_.device_budget(); }

  // The devices that a cover may use to be of any use.
  [[nodiscard]] std::size_t most_devices() const {
    return best_->plan.schedulable() ? best_->devices - 1 : problem_.device_budget();
  }

  void search() {
    CoverSearch search(problem_, relaxation_);
    adopt(search.run(most_devices(), best_->plan.schedulable(), kDive));
    for (const SearchEffort& effort : kWider) {
      if (!possible() || !may_improve()) return;
      adopt(search.run(most_devices(), true, effort));
    }
  }

  void adopt(const std::optional<Cover>& cover) {
    if (!cover) return;
    Draft draft = draft_of(problem_, cover->devices);
    draft.use_spare_share();
    consider(finish("cover", draft));
  }

  Plan explained() {
    Plan plan = std::move(best_->plan);
    plan.policy = "cover";
    std::size_t bound = at_least_;
    if (at_least_ > problem_.devices().size()) {
      bound = std::max(problem_.devices().size(),
                       whole_devices(relaxation_.bound_without_limits(rates_)));
    }
    plan.lower_bound = static_cast<std::uint32_t>(bound);
    return plan;
  }

  const PlanInput& input_;
  Problem problem_;
  Relaxation relaxation_;
  std::vector<double> rates_;
  std::size_t at_least_ = 0;
  std::optional<Candidate> best_;
};

}  // namespace

Plan CoverPolicy::plan(const PlanInput& input) const { return Covering(input).run(); }

}  // namespace gpulet::schedule
