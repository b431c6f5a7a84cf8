// The policies elastic, elastic-one-pass and elastic-preprint. Pure.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/candidates.h"
#include "schedule/filling.h"
#include "schedule/ideal.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {

// ---- elastic: gpulet (ATC 2022), section 4.3, algorithm 1
//
// Models come in ascending order of rate * SLO. Each takes gpulets of its ideal size, min(p_eff,
// p_req), by best fit over the remaining shares, until its rate is placed. Each such gpulet
// is first merged with an existing one if possible (temporal merging).
//
// Choices where the paper leaves one:
//  - p_eff: the paper calls it both "the highest performance per resource" and "the knee" of rate
//    over size. On real profiles these are two sizes. The knee, here the size whose rate lies
//    highest above the straight line from nothing to the best rate, is tried first.
//  - p_req: the smallest size whose own highest rate covers the unplaced rest of the demand.
//  - Attempts: the order and the ideal size decide more scenarios than anything else, and no choice
//    of them is always right. Where the paper's choice leaves demand unplaced, the same algorithm
//    runs with the heaviest model first (the order of the gpu-let preprint), with the other reading
//    of p_eff, and with p_req even where it is beyond p_eff, so that a rest is not cut up; last
//    with whole devices as the only size, also as sbp packs them. The first plan that serves
//    everything wins, else the one that serves most. So elastic never schedules less than sbp.
//  - Layouts: an attempt decides on one gpulet at a time, so it does not see that another division
//    of the devices has neighbours that disturb each other less. Where all attempts fail on a few
//    devices, ideal's search fills their layouts in a small number of steps.
//  - Best fit: the smallest remaining share that holds the ideal size. Another device is opened
//    only where no open one has such a share; among types, the one with the highest rate per
//    percent. A share whose rest no gpulet could use is taken whole, as the paper's second half of
//    a device is.
//  - Merging: a new gpulet and an existing one merge at the larger of their two sizes. Among those
//    that hold, the one that is fullest afterwards wins. All duty cycles are tried, not one.
//  - Interference: line 20 checks the newcomer only. Here a gpulet is created only where its
//    neighbours keep their rules as well. Since a gpulet filled to its last request tolerates no
//    neighbour at all, further attempts fill gpulets that could get a neighbour only as far as they
//    would tolerate a slowdown (kReserves). A share whose neighbours leave a model less than half
//    of its rate alone is skipped.
//  - Rest: where no remaining share is large enough, the rest goes to the largest spare capacity:
//    of existing gpulets, and of shares below the ideal size. The paper's loop ends without using
//    either.
//  - Plan in force: first only the necessary changes are made (resume_current_plan), because a
//    gpulet that stays costs no new process. Where that does not serve everything, one device after
//    the other is cleared for it, and only then is everything placed from nothing. Whether fewer
//    devices would do is the scaling loop's question (scaling.h): with fewer than are in use none
//    is cleared.
//  - Bursts: the sizes are chosen for mean rates. Unused share of an open device finally goes to
//    gpulets whose rounds cannot hold full bursts.

namespace {

enum class Efficient { knee, per_percent, whole };
// How a rest that needs more than p_eff is placed.
enum class Rest { in_parts, at_once };

struct Attempt {
  Efficient efficient;
  Order order;
  Rest rest;
};

// The paper's own attempt first.
constexpr std::array kAttempts{
    Attempt{Efficient::knee, Order::lightest_first, Rest::in_parts},
    Attempt{Efficient::knee, Order::lightest_first, Rest::at_once},
    Attempt{Efficient::knee, Order::heaviest_first, Rest::at_once},
    Attempt{Efficient::per_percent, Order::heaviest_first, Rest::at_once},
    Attempt{Efficient::per_percent, Order::lightest_first, Rest::at_once},
    Attempt{Efficient::knee, Order::heaviest_first, Rest::in_parts},
    Attempt{Efficient::per_percent, Order::heaviest_first, Rest::in_parts},
    Attempt{Efficient::whole, Order::lightest_first, Rest::in_parts}};

// With interference, the slowdowns by future neighbours that attempts allow for: about the lower
// quartile, the median and the upper end of the measured ones. More values would schedule a little
// more and cost as many attempts.
constexpr std::array kReserves{1.0, 1.15, 1.3, 1.6};

// Where every attempt leaves demand unplaced: the steps of the search over layouts, a fraction of
// those of `ideal`. Few for each combination, so that nearly all 35 of four devices are tried: one
// that serves the demand mostly does at once. With random arrivals a step takes several times as
// long, and no search succeeds where full batches alone would take most of the devices' time: of
// 2,300 on the reference case none above 0.55, of 60 on made-up devices none above 0.4.
constexpr SearchLimits kShortSearch{30'000, 1000};
constexpr SearchLimits kShortSearchAtRandom{3000, 1000, 0.6};

// With more models than this, each attempt leaves a remainder on so many devices that filling them
// (filling.h) and whole devices as sbp packs them are tried as well, and the plan with the fewest
// devices wins. With interference only the paper's attempt runs for each reserve then: models that
// do not fit in one order hardly fit in another.
constexpr std::size_t kManyModels = 32;

// Then a new gpulet tries only that many gpulets to merge with and, with interference, that many
// devices: each costs some microseconds, and most of them are refused.
constexpr std::size_t kMostTried = 12;

// With more models, so many attempts look for spare capacity for the rests that they leave: those
// that leave least. Rests take far longer to place than rates.
constexpr std::size_t kTriedRests = 2;

bool is_large(const PlanContext& context) {
  return context.input().interference != nullptr && context.models().size() > kManyModels;
}

// The highest rate of the curve if every batch took `slowdown` times as long.
double rate_slowed(const LatencyCurve& curve, double slo_ms, double slowdown) {
  if (slowdown == 1) return curve.max_rate;
  std::vector<double> latency_ms(curve.latency_ms, curve.latency_ms + curve.max_batch);
  LatencyCurve slowed = curve;
  slowed.latency_ms = latency_ms.data();
  slowed.max_batch = 0;
  for (double& latency : latency_ms) {
    latency *= slowdown;
    if (latency <= longest_useful_ms(slo_ms)) ++slowed.max_batch;
  }
  rate_curve(&slowed, slo_ms);
  return slowed.max_rate;
}

// The rates that gpulets may take of each model, with a reserve. Computed on first use.
class ReservedRates {
 public:
  // `context` outlives the object.
  ReservedRates(const PlanContext& context, double reserve)
      : context_(&context), reserve_(reserve), rates_(context.models().size()) {}

  // By class and size.
  const std::vector<std::vector<double>>& of(std::size_t model) {
    std::vector<std::vector<double>>& rates = rates_[model];
    if (!rates.empty()) return rates;
    const double slo_ms = context_->models()[model]->slo_ms;
    for (std::size_t index = 0; index < context_->classes().size(); ++index) {
      const std::vector<int>& sizes = context_->classes()[index].sizes;
      std::vector<double>& by_size = rates.emplace_back(sizes.size());
      for (std::uint32_t size = 0; size < sizes.size(); ++size) {
        const bool alone = sizes[size] + sizes.front() > kWholeDevice.percent;
        by_size[size] =
            rate_slowed(context_->curve(model, index, size), slo_ms, alone ? 1 : reserve_);
      }
    }
    return rates;
  }

 private:
  const PlanContext* context_;
  double reserve_;
  std::vector<std::vector<std::vector<double>>> rates_;  // by model; empty: not computed yet
};

// Of builders with one context, where curves differ by class, size and neighbours.
bool equal_gpulets(const BuilderGpulet& left, const BuilderGpulet& right) {
  return left.device == right.device && left.size == right.size &&
         std::equal(left.slots.begin(), left.slots.end(), right.slots.begin(), right.slots.end(),
                    [](const BatchSlot& one, const BatchSlot& other) {
                      return one.curve == other.curve && one.rate == other.rate &&
                             one.model == other.model;
                    });
}

class ElasticAttempt {
 public:
  // `rates` outlives the object.
  ElasticAttempt(PlanContext& context, Attempt attempt, ReservedRates& rates, PlanBuilder start)
      : context_(context),
        attempt_(attempt),
        reserved_(rates),
        most_tried_(is_large(context) ? kMostTried : kTryAll),
        most_partners_(context.models().size() > kManyModels ? kMostTried : kTryAll),
        builder_(std::move(start)),
        ideal_(context.classes().size()) {}

  // Returns whether all rates find a place on at most that many devices. Ends where more are open.
  bool place_all(std::size_t most_devices = std::numeric_limits<std::size_t>::max()) {
    for (const std::size_t model : order()) {
      (void)place(model);
      if (builder_.devices_used() > most_devices) return false;
    }
    return builder_.unplaced_fraction() == 0;
  }

  // Gives rests, after place_all, to spare capacity. Returns whether nothing is left of any; where
  // `only_whole`, it ends at the first of which something is.
  bool serve_rests(bool only_whole) {
    bool whole = true;
    for (const std::size_t model : order()) {
      while (builder_.unplaced(model) > 0 && serve_rest(builder_, model)) {
      }
      whole = whole && builder_.unplaced(model) <= 0;
      if (!whole && only_whole) return false;
    }
    return whole;
  }

  // The same without a search for places for rests. Empty where some rate finds no place.
  std::optional<PlanBuilder> run_without_rests() {
    for (const std::size_t model : order()) {
      if (!place(model)) return std::nullopt;
    }
    return std::move(builder_);
  }

  [[nodiscard]] const PlanBuilder& builder() const { return builder_; }
  [[nodiscard]] PlanBuilder take() { return std::move(builder_); }

  // Whether both have the same gpulets and give rests to spare capacity in the same order.
  [[nodiscard]] bool equals(const ElasticAttempt& other) const {
    return attempt_.order == other.attempt_.order &&
           std::equal(builder_.gpulets().begin(), builder_.gpulets().end(),
                      other.builder_.gpulets().begin(), other.builder_.gpulets().end(),
                      equal_gpulets);
  }

 private:
  // Places as much of the model's rate as finds a place; returns whether all did.
  bool place(std::size_t model) {
    rates_ = &reserved_.of(model);
    while (builder_.unplaced(model) > 0 && allocate(model)) {
    }
    return builder_.unplaced(model) <= 0;
  }

  [[nodiscard]] std::vector<std::size_t> order() const {
    return models_by(context_, attempt_.order, rate_times_slo);
  }

  // Lines 4-11.
  bool allocate(std::size_t model) {
    for (std::size_t index = 0; index < ideal_.size(); ++index)
      ideal_[index] = ideal_size(model, index);
    const RateOfSize alone = [this](std::size_t device_class, std::uint32_t size) {
      return (*rates_)[device_class][size];
    };
    const RateOfSize worthwhile = [&](std::size_t device_class, std::uint32_t size) {
      return alone(device_class, size) / 2;
    };
    // Lines 14-19 for the rest of open devices, lines 17-19 for whole ones.
    std::optional<Candidate> candidate =
        best_remaining(builder_, model, ideal_, worthwhile, most_tried_);
    if (!candidate)
      candidate = best_unopened(builder_, model, taken_of_whole(context_, ideal_), alone);
    if (!candidate) return false;
    if (!merge(model, *candidate)) occupy(builder_, model, *candidate);
    return true;
  }

  // Lines 6-8: an index into the class's sizes. Empty where no size serves the model.
  [[nodiscard]] std::optional<std::uint32_t> ideal_size(std::size_t model,
                                                        std::size_t device_class) const {
    const std::vector<int>& sizes = context_.classes()[device_class].sizes;
    const std::vector<double>& rates = (*rates_)[device_class];
    const double best_rate = *std::max_element(rates.begin(), rates.end());
    if (best_rate <= 0) return std::nullopt;
    std::optional<std::uint32_t> efficient;
    std::optional<std::uint32_t> required;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::uint32_t size = 0; size < sizes.size(); ++size) {
      if (rates[size] <= 0) continue;
      if (!required && rates[size] >= builder_.unplaced(model)) required = size;
      const double merit = efficiency(rates[size] / best_rate, sizes[size], sizes.back());
      if (merit > highest + kRoundingSlack) {
        highest = merit;
        efficient = size;
      }
    }
    if (!required || attempt_.efficient == Efficient::whole) return efficient;
    return attempt_.rest == Rest::at_once ? required : std::min(required, efficient);
  }

  [[nodiscard]] double efficiency(double part_of_best_rate, int percent,
                                  int largest_percent) const {
    switch (attempt_.efficient) {
      case Efficient::knee:
        return part_of_best_rate - static_cast<double>(percent) / largest_percent;
      case Efficient::per_percent:
        return part_of_best_rate / percent;
      case Efficient::whole:
        return percent;
    }
    return 0;
  }

  // Line 22: the model joins an existing gpulet that is at least as large as the candidate, or the
  // candidate's gpulet absorbs a smaller one, whose share becomes free.
  bool merge(std::size_t model, const Candidate& candidate) {
    list_partners(model, candidate);
    std::optional<std::size_t> best;
    double fullest = 0;
    for (const Partner& partner : partners_) {
      const BuilderGpulet& gpulet = builder_.gpulets()[partner.gpulet];
      const double load = partner.joined
                              ? gpulet.load + load_at(builder_.curve(model, gpulet), candidate.rate)
                              : partner.load;
      // Among equals the one created first.
      if (load <= fullest || load > kFullLoad) continue;
      if (partner.joined ? builder_.fits(partner.gpulet, model, candidate.rate)
                         : builder_.absorbs(candidate, model, partner.gpulet)) {
        best = partner.gpulet;
        fullest = load;
      }
    }
    if (!best) return false;
    if (builder_.percent(builder_.gpulets()[*best]) >= percent_of(candidate)) {
      builder_.add(*best, model, candidate.rate);
    } else {
      builder_.absorb(occupy(builder_, model, candidate), *best);
    }
    return true;
  }

  // A gpulet that may share its time with the candidate, which joins it or absorbs it.
  struct Partner {
    std::size_t gpulet = 0;
    bool joined = false;
    double load = 0;  // a lower bound of the common load: curves next to neighbours are no faster
  };

  // The fullest first, so that few are tried before one fits, and at most most_partners_.
  void list_partners(std::size_t model, const Candidate& candidate) {
    partners_.clear();
    for (std::size_t index = 0; index < builder_.gpulets().size(); ++index) {
      const BuilderGpulet& gpulet = builder_.gpulets()[index];
      if (gpulet.slots.empty()) continue;
      const bool joined = builder_.percent(gpulet) >= percent_of(candidate);
      const std::uint32_t device_class = builder_.devices()[gpulet.device].device_class;
      const LatencyCurve& alone = context_.curve(model, device_class, gpulet.size);
      const double load = joined ? gpulet.load + load_at(alone, candidate.rate)
                                 : load_absorbed(gpulet, model, candidate);
      if (load <= kFullLoad) partners_.push_back({index, joined, load});
    }
    const auto fuller = [](const Partner& a, const Partner& b) {
      return a.load != b.load ? a.load > b.load : a.gpulet < b.gpulet;
    };
    if (partners_.size() > most_partners_) {
      const auto end = partners_.begin() + static_cast<std::ptrdiff_t>(most_partners_);
      std::nth_element(partners_.begin(), end, partners_.end(), fuller);
      partners_.erase(end, partners_.end());
    }
    std::sort(partners_.begin(), partners_.end(), fuller);
  }

  [[nodiscard]] int percent_of(const Candidate& candidate) const {
    return context_.classes()[candidate.device_class].sizes[candidate.size];
  }

  [[nodiscard]] static double load_at(const LatencyCurve& curve, double rate) {
    return curve.max_batch == 0 ? std::numeric_limits<double>::infinity()
                                : rate * curve.min_request_ms / 1000;
  }

  // A lower bound of the common load.
  [[nodiscard]] double load_absorbed(const BuilderGpulet& gpulet, std::size_t model,
                                     const Candidate& candidate) const {
    double load =
        load_at(context_.curve(model, candidate.device_class, candidate.size), candidate.rate);
    for (const BatchSlot& slot : gpulet.slots) {
      load +=
          load_at(context_.curve(slot.model, candidate.device_class, candidate.size), slot.rate);
    }
    return load;
  }

  PlanContext& context_;
  const Attempt attempt_;
  ReservedRates& reserved_;
  const std::size_t most_tried_;  // devices
  const std::size_t most_partners_;
  PlanBuilder builder_;
  const std::vector<std::vector<double>>* rates_ = nullptr;  // of the current model
  WantedSizes ideal_;                                        // of the current model
  std::vector<Partner> partners_;                            // of the current candidate
};

// Keeps the builder that serves more, or as much on fewer devices.
void improve(std::optional<PlanBuilder>* best, PlanBuilder builder) {
  if (*best) {
    const double missing = (*best)->unplaced_fraction();
    const double now = builder.unplaced_fraction();
    if (now > missing || (now == missing && builder.devices_used() >= (*best)->devices_used()))
      return;
  }
  *best = std::move(builder);
}

bool is_complete(const std::optional<PlanBuilder>& best) {
  return best && best->unplaced_fraction() == 0;
}

}  // namespace

PlanBuilder elastic_partitioning(PlanContext& context) {
  std::optional<PlanBuilder> best;
  const bool interferes = context.input().interference != nullptr;
  const bool many = context.models().size() > kManyModels;
  if (many) {
    improve(&best, fill_devices(context));
    improve(&best, pack(context, whole_devices(context)));
  }
  if (many && is_crowded(context)) return *std::move(best);
  const std::size_t attempts = is_large(context) ? 1 : kAttempts.size();
  std::vector<ReservedRates> rates;
  rates.reserve(kReserves.size());
  for (const double reserve : kReserves) rates.emplace_back(context, reserve);
  std::vector<ElasticAttempt> incomplete;
  for (ReservedRates& reserved : rates) {
    for (const Attempt& attempt : std::span(kAttempts).first(attempts)) {
      ElasticAttempt made(context, attempt, reserved, PlanBuilder(context));
      const std::size_t most = is_complete(best) ? best->devices_used() : context.device_budget();
      if (made.place_all(most)) {
        improve(&best, made.take());
        return *std::move(best);
      }
      if (is_complete(best)) return *std::move(best);
      const bool repeats =
          std::any_of(incomplete.begin(), incomplete.end(),
                      [&made](const ElasticAttempt& one) { return one.equals(made); });
      if (!repeats) incomplete.push_back(std::move(made));
    }
    if (!interferes) break;
  }
  std::vector<std::pair<double, std::size_t>> promising;
  for (std::size_t at = 0; at < incomplete.size(); ++at)
    promising.emplace_back(incomplete[at].builder().unplaced_fraction(), at);
  std::sort(promising.begin(), promising.end());
  if (many) promising.resize(std::min(kTriedRests, promising.size()));
  for (const auto& [unplaced, at] : promising) {
    if (!incomplete[at].serve_rests(true)) continue;
    improve(&best, incomplete[at].take());
    return *std::move(best);
  }
  // Nothing serves everything.
  ElasticAttempt& furthest = incomplete[promising.front().second];
  furthest.serve_rests(false);
  improve(&best, furthest.take());
  if (!many) improve(&best, pack(context, whole_devices(context)));
  if (is_complete(best)) return *std::move(best);
  const bool random = context.input().options.headroom != Headroom::none;
  Searched searched = search_layouts(context, best->unplaced_fraction(),
                                     random ? kShortSearchAtRandom : kShortSearch);
  if (searched.builder) best = std::move(searched.builder);
  return *std::move(best);
}

namespace {

// Empty where no attempt serves everything.
std::optional<PlanBuilder> complete_from(PlanContext& context, const PlanBuilder& start) {
  ReservedRates rates(context, 1);
  for (const Attempt& attempt : kAttempts) {
    ElasticAttempt made(context, attempt, rates, start);
    if (made.place_all() || made.serve_rests(true)) return made.take();
    if (attempt.rest == Rest::at_once) break;  // the rest is small, so the order hardly matters
  }
  return std::nullopt;
}

// The devices of the plan in force by ascending number of gpulets, the cost of replanning them.
std::vector<DeviceKey> cheapest_to_clear(const Plan& current) {
  std::map<DeviceKey, std::size_t> gpulets;
  for (const PlannedGpulet& gpulet : current.gpulets) ++gpulets[gpulet.device];
  std::vector<DeviceKey> devices;
  devices.reserve(gpulets.size());
  for (const auto& [device, count] : gpulets) devices.push_back(device);
  std::stable_sort(devices.begin(), devices.end(), [&](const DeviceKey& a, const DeviceKey& b) {
    return gpulets.at(a) < gpulets.at(b);
  });
  return devices;
}

// The plan in force with its gpulets kept, or with those of one device replaced. Empty where
// neither serves everything.
std::optional<PlanBuilder> elastic_from_current(PlanContext& context) {
  constexpr std::size_t kMaxCleared = 8;  // each costs as much as a plan from nothing
  // Devices are to be given back. A search for places on those that stay costs many times as much
  // as a plan from nothing.
  if (context.input().current->devices_used() > context.device_budget()) {
    ReservedRates rates(context, 1);
    return ElasticAttempt(context, kAttempts.front(), rates, resume_current_plan(context))
        .run_without_rests();
  }
  if (auto stayed = complete_from(context, resume_current_plan(context))) return stayed;
  std::vector<DeviceKey> devices = cheapest_to_clear(*context.input().current);
  devices.resize(std::min(devices.size(), kMaxCleared));
  for (const DeviceKey& device : devices) {
    if (auto changed = complete_from(context, resume_current_plan(context, device))) return changed;
  }
  return std::nullopt;
}

}  // namespace

PlanBuilder build_elastic(PlanContext& context) {
  if (context.input().current != nullptr) {
    if (std::optional<PlanBuilder> stayed = elastic_from_current(context))
      return *std::move(stayed);
  }
  PlanBuilder builder = elastic_partitioning(context);
  builder.use_spare_share();
  return builder;
}

Plan plan_elastic(const PlanInput& input) {
  PlanContext context(input);
  return finish(build_elastic(context));
}

// ---- elastic-one-pass: the first attempt of `elastic` alone
//
// No other order or reading of p_eff, no rest on spare capacity, no search over layouts, no plan in
// force, no use of spare share. It shows what these are worth. It is close to gpulet's algorithm 1,
// which elastic-published (src/research) follows to the letter, and differs in two points:
//  - Neighbours keep their rules beside a newcomer, as in every plan (check.h). Line 20 of the
//    algorithm checks the newcomer only.
//  - Two gpulets merge if any duty cycle keeps both objectives. The rule that the paper cites
//    (section 2.2) tries one.

Plan plan_elastic_one_pass(const PlanInput& input) {
  PlanContext context(input);
  ReservedRates rates(context, 1);
  ElasticAttempt attempt(context, kAttempts.front(), rates, PlanBuilder(context));
  static_cast<void>(attempt.place_all());
  return finish(attempt.take());
}

// ---- elastic-preprint: gpu-let preprint, section 4.3, algorithm 1
//
// Models come in descending order of their rate. Each takes gpulets of size min(p_eff, p_req) by
// best fit until its rate is placed. Before one is created, its part of the rate is offered to
// every existing gpulet; where one can share its time, the new split is reverted.
//
// Differences from gpulet's version above: the order; p_req is that of the model's whole rate, not
// of its unplaced rest (line 10); the first existing gpulet that can share is taken, at its present
// size; and there is one attempt only.
//
// Choices where the paper leaves one:
//  - p_eff is "the knee, where the curvature has the local maximum" of the profiled rate over the
//    size. With a handful of sizes a curvature is mostly noise, so the knee is the size farthest
//    above the line from nothing to the best rate, as for elastic.
//  - A split is only made after merging has failed, which has the effect of reverting it.
//  - The paper does not say what happens when no remaining gpulet is large enough. The rest is then
//    offered to the existing ones as a whole; after that the largest part that one gpulet or one
//    remaining share can take is served, and the rest is unserved.
//  - Whether two models can share is decided over all duty cycles.

namespace {

class PreprintPartitioning {
 public:
  explicit PreprintPartitioning(PlanContext& context)
      : context_(context), builder_(context), ideal_(context.classes().size()) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by(context_, Order::heaviest_first, rate_of)) {
      find_ideal_sizes(model);
      while (builder_.unplaced(model) > 0 && allocate(model)) {
      }
      if (builder_.unplaced(model) > 0) serve_rest(builder_, model);
    }
    return std::move(builder_);
  }

 private:
  // Lines 9-11.
  void find_ideal_sizes(std::size_t model) {
    for (std::size_t index = 0; index < ideal_.size(); ++index) {
      ideal_[index] = knee_size(context_, model, index);
      const auto required = required_size(context_, model, index, context_.models()[model]->rate);
      if (ideal_[index] && required) ideal_[index] = std::min(*ideal_[index], *required);
    }
  }

  bool allocate(std::size_t model) {
    // Lines 20-32 for the rest of open devices, lines 23-25 for whole ones.
    const auto any_rate = [](std::size_t, std::uint32_t) { return 0.0; };
    std::optional<Candidate> candidate = best_remaining(builder_, model, ideal_, any_rate);
    if (!candidate) candidate = best_unopened(builder_, model, taken_of_whole(context_, ideal_));
    if (merge(model, candidate ? candidate->rate : builder_.unplaced(model))) return true;
    if (!candidate) return false;
    occupy(builder_, model, *candidate);
    return true;
  }

  // Lines 33-39.
  bool merge(std::size_t model, double rate) {
    for (std::size_t index = 0; index < builder_.gpulets().size(); ++index) {
      if (!builder_.fits(index, model, rate)) continue;
      builder_.add(index, model, rate);
      return true;
    }
    return false;
  }

  PlanContext& context_;
  PlanBuilder builder_;
  WantedSizes ideal_;  // of the current model
};

}  // namespace

Plan plan_elastic_preprint(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(PreprintPartitioning(context).run());
}

}  // namespace gpulet::schedule
