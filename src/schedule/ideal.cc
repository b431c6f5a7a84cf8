// The policy ideal: gpulet (ATC 2022), section 5.2, "exhaustively trying all partition
// combinations" of all devices, "until all cases are searched or a case produces a viable
// scheduling result".
//
// Choices where the paper leaves one:
//  - A device is divided in one of its maximal layouts, to which no listed size can be added and in
//    which no part can be enlarged. With the paper's sizes these are its four: (2:8), (4:6), (5:5)
//    and (10:0). Devices of a type are interchangeable, so 35 combinations of four devices stand
//    for the paper's 256.
//  - The paper does not say how models are placed within a combination. Here a backtracking search
//    does that in a bounded number of steps: no proof that a combination serves nothing more, but
//    far more than one pass.
//  - elastic runs first: its plan is one of the cases.
//  - The search is bounded. A cluster with more devices, layouts or combinations than the limits
//    below gets elastic's plan; so does one whose demand no combination could serve.
//    Where the steps run out, the best plan so far is returned. The plan's notes report each.
#include "schedule/ideal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>
#include <utility>

#include "schedule/candidates.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

class LayoutSearch {
 public:
  static constexpr std::size_t kStepsPerLayout = 100;

  LayoutSearch(const DeviceClass& device_class, std::size_t limit)
      : sizes_(device_class.sizes),
        max_parts_(device_class.example->max_partitions),
        limit_(limit) {}

  std::optional<std::vector<Layout>> run() {
    extend(static_cast<std::uint32_t>(sizes_.size()), kWholeDevice.percent);
    if (too_many()) return std::nullopt;
    return std::move(found_);
  }

 private:
  // Adds parts no larger than the present ones.
  void extend(std::uint32_t below, int free_percent) {
    ++steps_;
    if (is_maximal(free_percent)) found_.push_back(parts_);
    if (parts_.size() == max_parts_) return;
    for (std::uint32_t size = below; size-- > 0 && !too_many();) {
      if (sizes_[size] > free_percent) continue;
      parts_.push_back(size);
      extend(size + 1, free_percent - sizes_[size]);
      parts_.pop_back();
    }
  }

  // A long search that finds little counts as one that finds too much.
  [[nodiscard]] bool too_many() const {
    return found_.size() > limit_ || steps_ > kStepsPerLayout * limit_;
  }

  [[nodiscard]] bool is_maximal(int free_percent) const {
    if (parts_.size() < max_parts_ && sizes_.front() <= free_percent) return false;
    return std::none_of(parts_.begin(), parts_.end(), [&](std::uint32_t size) {
      return size + 1 < sizes_.size() && sizes_[size + 1] - sizes_[size] <= free_percent;
    });
  }

  const std::vector<int>& sizes_;
  const std::size_t max_parts_;
  const std::size_t limit_;
  std::size_t steps_ = 0;
  Layout parts_;
  std::vector<Layout> found_;
};

// The number of multisets of `count` elements out of `kinds`.
double multisets(std::size_t kinds, std::size_t count) {
  double result = 1;
  for (std::size_t step = 1; step <= count; ++step) {
    result *= static_cast<double>(kinds - 1 + step) / static_cast<double>(step);
  }
  return result;
}

class CombinationSearch {
 public:
  CombinationSearch(const PlanContext& context, const std::vector<std::vector<Layout>>& layouts,
                    const std::function<bool(const Combination& combination)>& visit)
      : context_(context), layouts_(layouts), visit_(visit) {}

  // Visits all layouts of the classes from `device_class` on. Returns whether a visit returned
  // true.
  bool from_class(std::size_t device_class, std::size_t budget) {
    if (device_class == context_.classes().size()) return budget == 0 && visit_(combination_);
    const std::size_t available = context_.classes()[device_class].devices.size();
    std::size_t in_later_classes = 0;
    for (std::size_t index = device_class + 1; index < context_.classes().size(); ++index) {
      in_later_classes += context_.classes()[index].devices.size();
    }
    const std::size_t least = budget > in_later_classes ? budget - in_later_classes : 0;
    for (std::size_t count = std::min(available, budget) + 1; count-- > least;) {
      if (divide(device_class, count, 0, budget - count)) return true;
    }
    return false;
  }

 private:
  // Adds `count` devices of the class, with layouts from `layout` on.
  bool divide(std::size_t device_class, std::size_t count, std::size_t layout, std::size_t budget) {
    if (count == 0) return from_class(device_class + 1, budget);
    for (std::size_t index = layout; index < layouts_[device_class].size(); ++index) {
      combination_.push_back(
          {static_cast<std::uint32_t>(device_class), &layouts_[device_class][index]});
      const bool found = divide(device_class, count - 1, index, budget);
      combination_.pop_back();
      if (found) return true;
    }
    return false;
  }

  const PlanContext& context_;
  const std::vector<std::vector<Layout>>& layouts_;
  const std::function<bool(const Combination& combination)>& visit_;
  Combination combination_;
};

}  // namespace

std::optional<std::vector<Layout>> maximal_layouts(const DeviceClass& device_class,
                                                   std::size_t limit) {
  return LayoutSearch(device_class, limit).run();
}

double count_combinations(const PlanContext& context,
                          const std::vector<std::vector<Layout>>& layouts) {
  // counts[n]: combinations of n devices of the classes so far.
  const std::size_t budget = context.device_budget();
  std::vector<double> counts(budget + 1, 0);
  counts[0] = 1;
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    std::vector<double> next(budget + 1, 0);
    const std::size_t available = context.classes()[index].devices.size();
    for (std::size_t count = 0; count <= std::min(available, budget); ++count) {
      const double ways = multisets(layouts[index].size(), count);
      for (std::size_t before = 0; before + count <= budget; ++before) {
        next[before + count] += counts[before] * ways;
      }
    }
    counts = std::move(next);
  }
  return counts[budget];
}

bool any_combination(const PlanContext& context, const std::vector<std::vector<Layout>>& layouts,
                     const std::function<bool(const Combination& combination)>& visit) {
  return CombinationSearch(context, layouts, visit).from_class(0, context.device_budget());
}

namespace {

// The rates that gpulets of a device can take of a model, found once for each content of a device:
// the combinations and the orders of the models come back to the same few. A rate takes some
// microseconds to find.
class KnownRates {
 public:
  struct Known {
    double rate = 0;
    std::uint64_t lookups = 0;  // of curves, to find it
  };
  // Classes, sizes and models by index, and rates bit by bit.
  using Key = std::vector<std::uint64_t>;

  // Null: not known.
  [[nodiscard]] const Known* find(const Key& key) const {
    const auto found = rates_.find(key);
    return found == rates_.end() ? nullptr : &found->second;
  }
  void insert(const Key& key, const Known& known) {
    if (rates_.size() < kMost) rates_.emplace(key, known);
  }

 private:
  static constexpr std::size_t kMost = 1 << 16;  // some 20 MB

  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0;
      for (const std::uint64_t word : key) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
      }
      return static_cast<std::size_t>(hash);
    }
  };
  std::unordered_map<Key, Known, Hash> rates_;
};

// A gpulet of the combination, created or not yet.
struct GpuletSlot {
  std::uint32_t host = 0;  // index into the combination
  std::uint32_t size = 0;  // index into the class's sizes
};

struct FillState {
  PlanBuilder builder;
  std::vector<std::optional<std::uint32_t>> opened;  // builder device of each host
  std::vector<std::optional<std::size_t>> made;      // builder gpulet of each slot
};

struct Placement {
  std::size_t slot = 0;
  double rate = 0;
  bool whole = false;  // the whole rest of the model
  double merit = 0;    // higher is tried first
};

class CombinationFiller {
 public:
  // All outlive the object. `known` is of the same context.
  CombinationFiller(PlanContext& context, const Combination& combination, std::uint64_t max_steps,
                    KnownRates& known)
      : context_(context),
        combination_(combination),
        known_(known),
        max_steps_(max_steps),
        lookups_before_(context.curve_lookups()),
        best_(context) {
    for (std::uint32_t host = 0; host < combination.size(); ++host) {
      for (const std::uint32_t size : *combination[host].layout) slots_.push_back({host, size});
    }
    for (std::size_t model = 0; model < context.models().size(); ++model) {
      least_work_.push_back(least_work(model));
    }
  }

  FillResult run() {
    const FillState empty{PlanBuilder(context_),
                          std::vector<std::optional<std::uint32_t>>(combination_.size()),
                          std::vector<std::optional<std::size_t>>(slots_.size())};
    if (!may_fit(empty)) return {std::move(best_), steps(), true};
    constexpr std::uint64_t kOrders = 4;
    bool complete = true;
    for (std::uint64_t order = 0; order < kOrders && best_.unplaced_fraction() > 0; ++order) {
      order_models(order);
      limit_ = max_steps_ * (order + 1) / kOrders;
      extend(empty, 0, 0);
      complete = complete && steps() < limit_;
    }
    return {std::move(best_), steps(), complete};
  }

 private:
  [[nodiscard]] std::uint64_t steps() const {
    return examined_ + known_lookups_ + context_.curve_lookups() - lookups_before_;
  }
  [[nodiscard]] std::uint32_t class_of(const GpuletSlot& slot) const {
    return combination_[slot.host].device_class;
  }
  [[nodiscard]] int percent(const GpuletSlot& slot) const {
    return context_.classes()[class_of(slot)].sizes[slot.size];
  }
  [[nodiscard]] const LatencyCurve& curve_alone(std::size_t model, const GpuletSlot& slot) const {
    return context_.curve(model, class_of(slot), slot.size);
  }

  // Percent * ms of a request in the slot where it is cheapest.
  [[nodiscard]] double least_work(std::size_t model) const {
    double least = std::numeric_limits<double>::infinity();
    for (const GpuletSlot& slot : slots_) {
      const LatencyCurve& curve = curve_alone(model, slot);
      if (curve.max_batch > 0) least = std::min(least, curve.min_request_ms * percent(slot));
    }
    return least;
  }

  // Whether the remaining gpulet time could hold the unplaced demand.
  [[nodiscard]] bool may_fit(const FillState& state) const {
    double work = 0;
    for (std::size_t model = 0; model < least_work_.size(); ++model) {
      if (state.builder.unplaced(model) > 0)
        work += state.builder.unplaced(model) * least_work_[model];
    }
    double available = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const double load = state.made[slot] ? state.builder.gpulets()[*state.made[slot]].load : 0;
      available += percent(slots_[slot]) * (1 - load);
    }
    return work <= available * 1000 * (1 + kRoundingSlack);
  }

  // By descending work, ascending work, ascending SLO, descending SLO.
  void order_models(std::uint64_t kind) {
    std::vector<std::pair<double, std::size_t>> keyed;
    for (std::size_t model = 0; model < context_.models().size(); ++model) {
      const ModelDemand& demand = *context_.models()[model];
      const double work = demand.rate * least_work_[model];
      const double keys[] = {-work, work, demand.slo_ms, -demand.slo_ms};
      keyed.emplace_back(keys[kind], model);
    }
    order_ = models_by(std::move(keyed));
  }

  // Places the models of the order from `at` on; parts of the current one only in slots from
  // `first_part` on, so that no set of parts is tried in two sequences. Returns whether all are
  // served.
  bool extend(const FillState& state, std::size_t at, std::size_t first_part) {
    while (at < order_.size() && state.builder.unplaced(order_[at]) <= 0) {
      ++at;
      first_part = 0;
    }
    if (state.builder.unplaced_fraction() < best_.unplaced_fraction()) best_ = state.builder;
    if (at == order_.size()) return best_.unplaced_fraction() == 0;
    if (!may_fit(state)) return false;
    const std::size_t model = order_[at];
    FillState tried = state;
    for (const Placement& placement : placements(&tried, model, first_part)) {
      if (steps() >= limit_) return false;
      FillState next = state;
      place(&next, model, placement);
      if (extend(next, at, placement.whole ? 0 : placement.slot + 1)) return true;
    }
    return false;
  }

  [[nodiscard]] std::vector<Placement> placements(FillState* state, std::size_t model,
                                                  std::size_t first_part) {
    const double unplaced = state->builder.unplaced(model);
    std::vector<Placement> found;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (repeats(*state, slot)) continue;
      ++examined_;
      Placement placement;
      placement.slot = slot;
      placement.rate = std::min(unplaced, max_rate(state, slot, model));
      placement.whole = placement.rate >= unplaced;
      if (placement.rate <= kRoundingSlack * context_.models()[model]->rate ||
          (!placement.whole && slot < first_part)) {
        continue;
      }
      const double load = state->made[slot] ? state->builder.gpulets()[*state->made[slot]].load : 0;
      const double used = placement.rate * curve_alone(model, slots_[slot]).min_request_ms / 1000;
      const double wasted = percent(slots_[slot]) * (1 - load - used);
      // Best fit where it fits, else the cheapest per request.
      placement.merit = placement.whole ? kWholeDevice.percent - wasted
                                        : -curve_alone(model, slots_[slot]).min_request_ms *
                                              percent(slots_[slot]);
      found.push_back(placement);
    }
    std::stable_sort(found.begin(), found.end(), [](const Placement& a, const Placement& b) {
      return a.whole != b.whole ? a.whole : a.merit > b.merit;
    });
    return found;
  }

  // Whether an earlier slot is equivalent for every model: both empty, of one size, on the same
  // device or on unopened devices of one class and layout.
  [[nodiscard]] bool repeats(const FillState& state, std::size_t slot) const {
    if (state.made[slot]) return false;
    const GpuletSlot& own = slots_[slot];
    for (std::size_t before = 0; before < slot; ++before) {
      const GpuletSlot& other = slots_[before];
      if (state.made[before] || other.size != own.size || class_of(other) != class_of(own))
        continue;
      if (other.host == own.host) return true;
      const bool untouched = !state.opened[other.host] && !state.opened[own.host];
      if (untouched && combination_[other.host].layout == combination_[own.host].layout)
        return true;
    }
    return false;
  }

  // Lookups of curves count as steps whether the rate is known or not.
  [[nodiscard]] double max_rate(FillState* state, std::size_t slot, std::size_t model) {
    const GpuletSlot& own = slots_[slot];
    const auto device = state->opened[own.host];
    if (!device) {
      const PlanBuilder& builder = state->builder;
      const bool opens =
          builder.can_open(class_of(own)) && builder.memory_fits_empty(model, class_of(own));
      return opens ? curve_alone(model, own).max_rate : 0;
    }
    describe(*state, slot, model);
    if (const KnownRates::Known* const known = known_.find(key_)) {
      known_lookups_ += known->lookups;
      return known->rate;
    }
    const std::uint64_t before = context_.curve_lookups();
    const double rate = find_max_rate(state, slot, *device, model);
    known_.insert(key_, {rate, context_.curve_lookups() - before});
    return rate;
  }

  [[nodiscard]] double find_max_rate(FillState* state, std::size_t slot, std::uint32_t device,
                                     std::size_t model) const {
    PlanBuilder& builder = state->builder;
    const auto gpulet = state->made[slot];
    if (!gpulet) return builder.max_rate_of_new(device, slots_[slot].size, model);
    return most_of(builder, *gpulet, model, builder.unplaced(model));
  }

  // Sets key_ to all that the rate depends on. REQUIRES: the device of the slot is open.
  void describe(const FillState& state, std::size_t slot, std::size_t model) {
    const PlanBuilder& builder = state.builder;
    const GpuletSlot& own = slots_[slot];
    const auto made = state.made[slot];
    key_.assign({class_of(own), own.size, model,
                 made ? std::bit_cast<std::uint64_t>(builder.unplaced(model)) : 0});
    for (auto at = builder.devices()[*state.opened[own.host]].first; at;
         at = builder.gpulets()[*at].next) {
      const BuilderGpulet& gpulet = builder.gpulets()[*at];
      key_.push_back(gpulet.size);
      key_.push_back(2 * gpulet.slots.size() + (made == *at ? 1 : 0));
      for (const BatchSlot& one : gpulet.slots) {
        key_.push_back(one.model);
        key_.push_back(std::bit_cast<std::uint64_t>(one.rate));
      }
    }
  }

  void place(FillState* state, std::size_t model, const Placement& placement) const {
    const GpuletSlot& own = slots_[placement.slot];
    if (const auto gpulet = state->made[placement.slot]) {
      state->builder.add(*gpulet, model, placement.rate);
      return;
    }
    if (!state->opened[own.host]) state->opened[own.host] = state->builder.open(class_of(own));
    state->made[placement.slot] =
        state->builder.add_gpulet(*state->opened[own.host], own.size, model, placement.rate);
  }

  PlanContext& context_;
  const Combination& combination_;
  KnownRates& known_;
  KnownRates::Key key_;
  const std::uint64_t max_steps_;
  std::uint64_t limit_ = 0;  // of the current order
  const std::uint64_t lookups_before_;
  std::uint64_t examined_ = 0;
  std::uint64_t known_lookups_ = 0;
  std::vector<GpuletSlot> slots_;
  std::vector<double> least_work_;  // parallel to the context's models
  std::vector<std::size_t> order_;
  PlanBuilder best_;
};

}  // namespace

FillResult fill(PlanContext& context, const Combination& combination, std::uint64_t max_steps) {
  KnownRates known;
  return CombinationFiller(context, combination, max_steps, known).run();
}

namespace {

constexpr std::size_t kMaxDevices = 16;
constexpr std::size_t kMaxLayouts = 100;   // of one class
constexpr double kMaxCombinations = 5000;  // of all devices
constexpr SearchLimits kLimits{420000, 12000};

// The part of the devices' time that the work of all demands takes at least, each at its cheapest
// size and in full batches.
double least_load(const PlanContext& context) {
  double work = 0;  // percent * ms a second
  for (std::size_t model = 0; model < context.models().size(); ++model) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t index = 0; index < context.classes().size(); ++index) {
      const std::vector<int>& sizes = context.classes()[index].sizes;
      for (std::size_t size = 0; size < sizes.size(); ++size) {
        const LatencyCurve& curve = context.curve(model, index, size);
        if (curve.max_batch > 0) least = std::min(least, curve.min_request_ms * sizes[size]);
      }
    }
    work += least * context.models()[model]->rate;
  }
  return work / (100.0 * static_cast<double>(context.device_budget()) * 1000);
}

std::string too_large(const std::string& size) {
  return "too large to search: " + size + "; this is elastic's plan";
}

std::optional<std::string> gather_layouts(const PlanContext& context,
                                          std::vector<std::vector<Layout>>* layouts) {
  if (context.device_budget() > kMaxDevices)
    return too_large(fmt::format("{} devices, more than {}", context.device_budget(), kMaxDevices));
  for (const DeviceClass& device_class : context.classes()) {
    auto found = maximal_layouts(device_class, kMaxLayouts);
    if (!found) {
      return too_large(fmt::format("a device of type {} can be divided in more than {} ways",
                                   device_class.example->type, kMaxLayouts));
    }
    layouts->push_back(*std::move(found));
  }
  if (count_combinations(context, *layouts) > kMaxCombinations)
    return too_large(
        fmt::format("more than {:.0f} combinations of partitionings", kMaxCombinations));
  return std::nullopt;
}

}  // namespace

bool ideal_searches(const PlanContext& context) {
  std::vector<std::vector<Layout>> layouts;
  return !gather_layouts(context, &layouts);
}

Searched search_layouts(PlanContext& context, double to_beat, const SearchLimits& limits) {
  if (!(least_load(context) <= limits.most_load * (1 + kRoundingSlack))) return {};
  std::vector<std::vector<Layout>> layouts;
  if (const auto reason = gather_layouts(context, &layouts)) return {std::nullopt, *reason};
  Searched searched;
  KnownRates known;
  std::uint64_t steps = 0;
  bool complete = true;
  any_combination(context, layouts, [&](const Combination& combination) {
    const std::uint64_t most = std::min(limits.each, limits.all - std::min(steps, limits.all));
    FillResult filled = CombinationFiller(context, combination, most, known).run();
    steps += filled.steps;
    complete = complete && filled.complete;
    const double unplaced = filled.builder.unplaced_fraction();
    if (unplaced < to_beat) {
      to_beat = unplaced;
      searched.builder = std::move(filled.builder);
    }
    return to_beat == 0 || steps >= limits.all;
  });
  if (to_beat > 0 && !complete) {
    searched.note =
        fmt::format("the search ended after {} steps, before everything was tried", steps);
  }
  return searched;
}

Plan plan_ideal(const PlanInput& input) {
  PlanContext context(input);
  PlanBuilder best = elastic_partitioning(context);
  std::string note;
  if (best.unplaced_fraction() > 0) {
    Searched searched = search_layouts(context, best.unplaced_fraction(), kLimits);
    if (searched.builder) best = *std::move(searched.builder);
    note = std::move(searched.note);
  }
  Plan plan = finish_enlarged(std::move(best));
  if (!note.empty()) plan.notes.push_back(std::move(note));
  return plan;
}

}  // namespace gpulet::schedule
