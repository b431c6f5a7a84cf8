// The policies `cover` and `auto`. `cover` chooses the fewest ways to fill a device that together
// serve the demand:
//
//  1. The relaxation prices gpulet time of every size and gives a lower bound on the devices.
//  2. The plans of the other policies are the first candidates, so that none of them serves what
//     this one does not, or does so on fewer devices. `ideal` comes last, and only where everything
//     else left demand unserved that the bound does not rule out: it may take longer than the rest
//     together. (Where the cluster is too large for its search, its plan is elastic's.)
//  3. The search covers the demand device by device with fillings that waste least at those prices,
//     with more and more alternatives, until a cover meets the bound or the work is spent. Work is
//     counted in batch slots and curve lookups, not in time, so the same input always gives the
//     same plan.
//
// A plan that meets the bound is optimal. The bound counts as the planner does, with latencies that
// never fall as a batch grows.
//
// `auto` is `cover` within a budget (PlanOptions::budget_ms), and `elastic` where the budget does
// not suffice:
//  - Everything beyond elastic's plan is charged to the budget. What it cannot pay is left out.
//  - Where continuing the plan in force serves the demand, it does. So no process moves without
//  need,
//    and the scaling loop decides whether fewer devices would do.
//  - Devices under MIG serve what elastic leaves unserved, by the greedy algorithm.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/candidates.h"
#include "schedule/cover/device_choices.h"
#include "schedule/cover/least_slowdowns.h"
#include "schedule/cover/relaxation.h"
#include "schedule/cover/rest_packing.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

// The sums of the relaxation carry rounding.
constexpr double kBoundSlack = 1e-7;
// With more devices to go, a filling is repeated at once as often as the remaining rates allow.
constexpr std::size_t kFewDevices = 16;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

struct SearchEffort {
  SearchWidth width;
  std::size_t choices = 1;              // for each next device
  std::size_t beam = 1;                 // partial covers that are kept
  std::uint64_t max_work = kUnlimited;  // DeviceChooser::work before it gives up
};

bool nothing_remains(const Remaining& remaining) {
  return std::all_of(remaining.rates.begin(), remaining.rates.end(),
                     [](double rate) { return rate == 0; });
}

// Covers the demands device by device: a beam search over ways to fill the next device, guided by
// the relaxation.
class CoverSearch {
 public:
  // Both outlive the object; the relaxation is priced for the context's demands.
  CoverSearch(PlanContext& context, Relaxation& relaxation)
      : context_(&context),
        relaxation_(&relaxation),
        chooser_(context, relaxation),
        first_work_(chooser_.work()) {}

  // Since the object was created.
  [[nodiscard]] std::uint64_t work() const { return chooser_.work() - first_work_; }

  // A cover with at most `devices` devices. `only_whole`: gives up where the relaxation proves that
  // nothing serves everything, and returns nothing where it finds no such cover; otherwise it
  // covers as much as it can.
  [[nodiscard]] std::optional<std::vector<FilledDevice>> run(std::size_t devices, bool only_whole,
                                                             const SearchEffort& effort) {
    nodes_.clear();
    devices_ = devices;
    const std::uint64_t first_work = chooser_.work();
    chooser_.end_at(effort.max_work == kUnlimited ? kUnlimited : first_work + effort.max_work);
    std::vector<State> beam{start()};
    std::vector<State> next;
    State furthest = beam.front();
    while (!beam.empty()) {
      next.clear();
      for (const State& state : beam) {
        if (nothing_remains(state.remaining)) return cover_of(state);
        if (chooser_.work() - first_work > effort.max_work) break;
        if (state.used < devices_) expand(state, effort, &next);
      }
      if (only_whole) {
        std::erase_if(next, [&](const State& state) {
          return state.bound > static_cast<double>(devices_) + kBoundSlack;
        });
      }
      std::stable_sort(next.begin(), next.end(),
                       [](const State& a, const State& b) { return a.bound < b.bound; });
      const auto same = [](const State& a, const State& b) {
        return a.bound == b.bound && a.remaining.rates == b.remaining.rates;
      };
      next.erase(std::unique(next.begin(), next.end(), same), next.end());
      if (next.size() > effort.beam) next.resize(effort.beam);
      if (!next.empty()) furthest = next.front();
      std::swap(beam, next);
    }
    if (only_whole) return std::nullopt;
    return cover_of(furthest);
  }

 private:
  struct Node {
    std::optional<std::size_t> parent;
    FilledDevice filled;
  };
  struct State {
    std::optional<std::size_t> node;  // index into nodes_; empty: no device is filled yet
    Remaining remaining;
    std::vector<std::size_t> unopened;  // parallel to the context's classes
    std::size_t used = 0;
    double bound = 0;  // least number of devices of a whole cover
  };

  [[nodiscard]] State start() const {
    State state;
    for (const DeviceClass& known : context_->classes())
      state.unopened.push_back(known.devices.size());
    for (std::size_t model = 0; model < context_->models().size(); ++model) {
      // Models that no device serves are left out.
      const double rate = context_->servable(model) ? context_->models()[model]->rate : 0;
      const double cost = relaxation_->cost(model, rate);
      state.remaining.rates.push_back(rate);
      state.remaining.costs.push_back(cost);
    }
    state.bound = bound_of(state);
    return state;
  }

  void expand(const State& state, const SearchEffort& effort, std::vector<State>* next) {
    for (std::uint32_t index = 0; index < state.unopened.size(); ++index) {
      if (state.unopened[index] == 0) continue;
      for (DeviceChoice& choice :
           chooser_.best(index, state.remaining, effort.width, effort.choices)) {
        add(state, std::move(choice), next);
      }
    }
  }

  void add(const State& state, DeviceChoice choice, std::vector<State>* next) {
    State& added = next->emplace_back();
    const std::uint32_t index = choice.filled.device_class;
    std::size_t copies = 1;
    if (devices_ - state.used > kFewDevices) {
      double repetitions =
          static_cast<double>(std::min(state.unopened[index], devices_ - state.used));
      for (std::size_t model = 0; model < state.remaining.rates.size(); ++model) {
        const double taken = state.remaining.rates[model] - choice.remaining.rates[model];
        if (taken > 0)
          repetitions = std::min(repetitions, std::floor(state.remaining.rates[model] / taken));
      }
      copies = std::max<std::size_t>(1, static_cast<std::size_t>(repetitions));
    }
    added.node = state.node;
    added.unopened = state.unopened;
    added.unopened[index] -= copies;
    added.used = state.used + copies;
    added.remaining = std::move(choice.remaining);
    for (std::size_t copy = 1; copy < copies; ++copy) {
      for (const FilledGpulet& gpulet : choice.filled.gpulets) {
        for (const Portion& portion : gpulet.portions)
          take_from(&added.remaining, portion, *context_, *relaxation_);
      }
    }
    for (std::size_t copy = 0; copy < copies; ++copy) {
      nodes_.push_back({added.node, choice.filled});
      added.node = nodes_.size() - 1;
    }
    added.bound = bound_of(added);
  }

  [[nodiscard]] double bound_of(const State& state) const {
    double bound = static_cast<double>(state.used);
    for (const double cost : state.remaining.costs) bound += cost;
    for (std::size_t index = 0; index < state.unopened.size(); ++index) {
      bound -= static_cast<double>(state.unopened[index]) * relaxation_->scarcity(index);
    }
    return bound;
  }

  [[nodiscard]] std::vector<FilledDevice> cover_of(const State& state) const {
    std::vector<FilledDevice> devices;
    for (std::optional<std::size_t> at = state.node; at; at = nodes_[*at].parent)
      devices.push_back(nodes_[*at].filled);
    std::reverse(devices.begin(), devices.end());
    return devices;
  }

  PlanContext* context_;
  Relaxation* relaxation_;
  DeviceChooser chooser_;
  std::uint64_t first_work_ = 0;
  std::vector<Node> nodes_;
  std::size_t devices_ = 0;
};

// The possible rounding error of the relaxation's sums.
constexpr double kBoundRounding = 1e-6;

// One device after the other, without alternatives: near linear in the devices, hence unlimited.
constexpr SearchEffort kDive{{2, 2}, 1, 1, kUnlimited};
// Each runs where the previous ones have not reached the bound. The last two are limited; on small
// clusters they mostly find a cover.
constexpr std::array kWider{SearchEffort{{4, 6}, 1, 1, kUnlimited},
                            SearchEffort{{3, 4}, 4, 25, 20000},
                            SearchEffort{{4, 6}, 12, 150, 120000}};

// Plans compare by their unserved demand, then by devices.
struct CandidatePlan {
  Plan plan;
  double unserved = 0;  // sum over models of the unserved fraction
  std::size_t devices = 0;

  [[nodiscard]] bool better_than(const CandidatePlan& other) const {
    if (std::abs(unserved - other.unserved) > kRoundingSlack) return unserved < other.unserved;
    return devices < other.devices;
  }
};

// Costs in units of DeviceChooser::work. A core of a small server does 100 to 250 units in a
// millisecond (bench_schedule). The others are estimates: a curve of the relaxation (for each row
// of its linear program), a model of another policy's plan (for each device), and all of `ideal`.
constexpr double kWorkPerMs = 100;
constexpr std::uint64_t kWorkOfCurve = 1;
constexpr std::uint64_t kWorkOfPlacement = 4;
constexpr std::uint64_t kWorkOfIdeal = 200'000;
constexpr std::uint64_t kWorkOfTest = 1;
constexpr double kWorkOfSlowdowns = 4000 * kWorkPerMs;  // for LeastSlowdowns::effort

// With fewer models the search considers enough alternatives.
constexpr std::size_t kLeastToPack = 32;

class CoverPlanner {
 public:
  // `budget`: of work.
  CoverPlanner(const PlanInput& input, std::uint64_t budget)
      : input_(input), context_(input, Division::either), budget_(budget) {
    for (const ModelDemand* demand : context_.models()) rates_.push_back(demand->rate);
    std::uint64_t sizes = 0;
    for (const DeviceClass& known : context_.classes()) sizes += known.sizes.size();
    double slowdowns = 0;
    for (std::uint32_t index = 0; index < context_.classes().size(); ++index)
      slowdowns += kWorkOfSlowdowns * LeastSlowdowns::effort(context_, index);
    if (!charge(kWorkOfCurve * sizes * rates_.size() * (sizes + rates_.size()) +
                static_cast<std::uint64_t>(slowdowns))) {
      return;
    }
    relaxation_.emplace(context_);
    relaxation_->price(rates_);
    lower_bound_ = round_up(relaxation_->bound(rates_));
  }

  Plan cover() {
    const Plan elastic = plan_elastic(input_);
    best_ = candidate_of(elastic);
    if (may_improve() && has_mig()) {
      consider(plan_mig_two_phase(input_));
      consider(with_mig_devices(input_, elastic));
    }
    improve();
    return explained();
  }

  Plan cover_or_elastic() {
    if (input_.current != nullptr) {
      consider(finish_enlarged(resume_current_plan(context_)));
      if (best_->plan.schedulable()) return explained();
    }
    consider(with_mig_devices(input_, plan_elastic(input_)));
    if (input_.current != nullptr && best_->plan.schedulable()) return explained();
    if (relaxation_) improve();
    return explained();
  }

 private:
  [[nodiscard]] static std::size_t round_up(double devices) {
    return static_cast<std::size_t>(std::max(0.0, std::ceil(devices - kBoundRounding)));
  }

  [[nodiscard]] CandidatePlan candidate_of(Plan plan) const {
    CandidatePlan candidate;
    for (const Unserved& one : plan.unserved) {
      const std::uint32_t model = context_.find_model(one.model).value();
      candidate.unserved += one.rate / context_.models()[model]->rate;
    }
    candidate.devices = plan.devices_used();
    candidate.plan = std::move(plan);
    return candidate;
  }

  void consider(Plan plan) {
    CandidatePlan candidate = candidate_of(std::move(plan));
    if (!best_ || candidate.better_than(*best_)) best_ = std::move(candidate);
  }

  // Takes the work from the budget. Returns false, and takes nothing, where too little is left.
  bool charge(std::uint64_t work) {
    if (work > budget_) return false;
    if (budget_ != kUnlimited) budget_ -= work;
    return true;
  }

  [[nodiscard]] bool has_mig() const {
    return std::any_of(context_.classes().begin(), context_.classes().end(),
                       [](const DeviceClass& known) { return known.example->mig.has_value(); });
  }

  [[nodiscard]] bool may_improve() const {
    return !best_->plan.schedulable() || best_->devices > lower_bound_;
  }

  // Whether the bound allows a plan that serves everything.
  [[nodiscard]] bool possible() const { return lower_bound_ <= context_.device_budget(); }

  // The most devices with which a cover improves on the best plan.
  [[nodiscard]] std::size_t max_devices() const {
    return best_->plan.schedulable() ? best_->devices - 1 : context_.device_budget();
  }

  // REQUIRES: the relaxation is priced.
  void improve() {
    if (!may_improve()) return;
    for (const auto plan : {plan_sbp, plan_sbp_split, plan_elastic_preprint, plan_greedy_best_fit,
                            plan_guided_self_tuning}) {
      if (charge(kWorkOfPlacement * rates_.size() * best_->devices)) consider(plan(input_));
      if (is_crowded(context_)) return;  // the others and the search divide devices
    }
    if (context_.models().size() > kLeastToPack && can_pack_rests(context_) &&
        context_.interferes(0) && charge(kWorkOfTest * tests_of_packing(context_))) {
      consider(finish_enlarged(pack_rests(context_)));
    }
    search();
    if (!best_->plan.schedulable() && possible() && !has_mig() && ideal_searches(context_) &&
        charge(kWorkOfIdeal)) {
      consider(plan_ideal(input_));
    }
  }

  void search() {
    CoverSearch search(context_, *relaxation_);
    const auto run = [&](bool only_whole, SearchEffort effort) {
      effort.max_work = std::min(effort.max_work, budget_);
      const std::uint64_t before = search.work();
      adopt(search.run(max_devices(), only_whole, effort));
      charge(std::min(budget_, search.work() - before));
    };
    run(best_->plan.schedulable(), kDive);
    for (const SearchEffort& effort : kWider) {
      if (!possible() || !may_improve() || budget_ == 0) return;
      run(true, effort);
    }
  }

  void adopt(const std::optional<std::vector<FilledDevice>>& cover) {
    if (!cover) return;
    consider(finish_enlarged(build_from(context_, *cover)));
  }

  Plan explained() {
    Plan plan = std::move(best_->plan);
    explain_all_unserved(context_, &plan);
    if (!relaxation_) return plan;
    std::size_t bound = lower_bound_;
    if (lower_bound_ > context_.devices().size()) {
      bound =
          std::max(context_.devices().size(), round_up(relaxation_->bound_without_limits(rates_)));
    }
    plan.lower_bound = static_cast<std::uint32_t>(bound);
    return plan;
  }

  const PlanInput& input_;
  PlanContext context_;
  std::optional<Relaxation> relaxation_;  // empty: the budget does not pay for it
  std::vector<double> rates_;
  std::size_t lower_bound_ = 0;
  std::uint64_t budget_ = 0;
  std::optional<CandidatePlan> best_;
};

}  // namespace

Plan plan_cover(const PlanInput& input) {
  return plan_gpus_first(
      input, [](const PlanInput& part) { return CoverPlanner(part, kUnlimited).cover(); });
}

Plan plan_auto(const PlanInput& input) {
  return plan_gpus_first(input, [](const PlanInput& part) {
    const double budget = part.options.budget_ms * kWorkPerMs;
    return CoverPlanner(part, static_cast<std::uint64_t>(budget)).cover_or_elastic();
  });
}

}  // namespace gpulet::schedule
