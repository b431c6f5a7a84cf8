// elastic-shipped and sbp-shipped: what the program does that gpulet's authors published
// (casys-kaist/glet, commit 3c1c2aad), in our own words and code.
//
// Models come in ascending order of rate * SLO. Each is divided into parts: saturated gpulets of
// the knee's size and the smallest gpulet for the rest. If all parts find a gpulet, they take it.
// Otherwise the model takes free gpulets one after the other, the largest first; its unsaturated
// gpulets become one if one suffices; and the rest shares the time of gpulets that are not full.
//
// It differs from the paper's text (elastic_published.cc):
//  - The knee is the upper end of the steepest segment of the rate over the size, of those that
//  gain
//    more than 5 %; the segment up to the whole device does not count.
//  - A part takes a gpulet of exactly its size, or a whole device, rather than the smallest
//    sufficient one.
//  - Beside a newcomer a neighbour's batch shrinks until its objective holds. What it loses is not
//    placed unless less than 85 % of the model's rate is left; then the model is placed once more.
//  - A rest of up to 15 requests/s counts as placed, and in a gpulet with several models, or one
//    that is not full, an objective may be missed by 5 %.
//  - All latencies of a round and the duty cycle together must be within each objective.
//  - Models only share the time of a gpulet whose duty cycle becomes no longer, three at most.
//
// With Headroom::poisson, rates are raised as the program raises them: to the 99th percentile of
// the arrivals of one second, and above 550 requests/s by a tenth.
//
// sbp-shipped is the same program with whole devices as the only size, as its configuration
// "timesharing_only" has it.
//
// Deviations from the program:
//  - A model whose whole rate is below the slack is placed; the program does not serve it.
//  - Its search for the largest batch never finds 32, and releasing gpulets that then find no
//    common one loses their rates. Neither is repeated here.
//  - If some of a model's parts do not fit, none of them stays.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "research/policies.h"
#include "research/published/rounds.h"
#include "schedule/candidates.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

constexpr double kRateSlack = 15;             // requests/s
constexpr double kObjectiveSlack = 1.05;      // of the SLO
constexpr double kLeastGain = 1.05;           // of a segment's rates
constexpr double kLeastServed = 0.85;         // of a model's rate
constexpr std::size_t kMostModelsShared = 3;  // in one gpulet

enum class Sizes { all, whole };

// A part of a model's rate, and the size of the gpulet that it asks for.
struct Part {
  std::uint32_t size = 0;  // of class 0: the authors' devices are of one type
  OwnRounds rounds;
};

class ShippedScheduler {
 public:
  // `times` outlives the object.
  ShippedScheduler(RoundTimes& times, Sizes sizes)
      : times_(&times), sizes_(sizes), devices_(times.context()) {
    for (const ModelDemand* demand : context().models()) unplaced_.push_back(demand->rate);
  }

  void run() {
    const std::vector<std::size_t> order =
        models_by(context(), Order::lightest_first, rate_times_slo);
    for (const std::size_t model : order) place(model);
    for (const std::size_t model : order) {
      if (unplaced_[model] == 0 && served(model) < kLeastServed * demanded(model))
        place_again(model);
    }
    for (std::size_t model = 0; model < unplaced_.size(); ++model) settle(model);
  }

  [[nodiscard]] Plan plan() const { return devices_.plan(unplaced_); }

 private:
  [[nodiscard]] const PlanContext& context() const { return times_->context(); }
  [[nodiscard]] double demanded(std::size_t model) const { return context().models()[model]->rate; }
  [[nodiscard]] double slo_ms(std::size_t model) const { return context().models()[model]->slo_ms; }

  [[nodiscard]] bool is_placed(std::size_t model) const {
    return unplaced_[model] <= (served(model) > 0 ? kRateSlack : 0);
  }
  [[nodiscard]] double served(std::size_t model) const {
    double rate = 0;
    for (const GpuletIndex& index : devices_.all()) {
      for (const RoundSlot& slot : devices_.at(index).slots)
        rate += slot.model == model ? slot.rate : 0;
    }
    return rate;
  }
  void take(std::size_t model, double rate) {
    unplaced_[model] = std::max(0.0, unplaced_[model] - rate);
  }

  void place(std::size_t model) {
    if (context().classes().empty()) return;
    if (!place_parts(model)) take_free_gpulets(model);
    finish_placing(model);
  }

  // Of a model whose neighbours took too much: in its own gpulets and the free ones.
  void place_again(std::size_t model) {
    for (const GpuletIndex& index : devices_.all()) {
      RoundGpulet& gpulet = devices_.at(index);
      std::erase_if(gpulet.slots, [model](const RoundSlot& one) { return one.model == model; });
      if (gpulet.is_free()) devices_.release(index);
    }
    unplaced_[model] = demanded(model);
    take_free_gpulets(model);
    finish_placing(model);
  }

  void finish_placing(std::size_t model) {
    join_unsaturated(model);
    if (!is_placed(model)) share_time(model);
    if (is_placed(model)) unplaced_[model] = 0;
  }

  // Shares out what the slacks leave over, and reports a model that was not accepted.
  void settle(std::size_t model) {
    const double rate = served(model);
    const double goal = demanded(model) - unplaced_[model];
    if (rate <= 0) {
      unplaced_[model] = demanded(model);
    } else if (rate < kLeastServed * goal) {
      unplaced_[model] = demanded(model) - rate;
    } else {
      scale_rates(model, goal / rate);
    }
  }

  void scale_rates(std::size_t model, double factor) {
    for (const GpuletIndex& index : devices_.all()) {
      for (RoundSlot& slot : devices_.at(index).slots) {
        if (slot.model == model) slot.rate *= factor;
      }
    }
  }

  // ---- parts

  [[nodiscard]] std::uint32_t knee(std::size_t model) const {
    const DeviceClass& known = context().classes().front();
    const auto whole = static_cast<std::uint32_t>(known.sizes.size() - 1);
    if (sizes_ == Sizes::whole) return whole;
    std::uint32_t best = 0;
    double steepest = 0;
    for (std::uint32_t size = 0; size + 2 <= whole; ++size) {
      const double low = context().curve(model, 0, size).max_rate;
      const double high = context().curve(model, 0, size + 1).max_rate;
      if (high < kLeastGain * low) continue;
      const double gain = (high - low) / (known.sizes[size + 1] - known.sizes[size]);
      if (gain <= steepest) continue;
      steepest = gain;
      best = size + 1;
    }
    return best;
  }

  // Empty where the model cannot use a gpulet of the knee's size.
  [[nodiscard]] std::vector<Part> parts_of(std::size_t model) {
    std::vector<Part> parts;
    const std::uint32_t size = knee(model);
    double rate = unplaced_[model];
    while (rate > (parts.empty() ? 0 : kRateSlack)) {
      const std::optional<OwnRounds> own = times_->own_rounds(model, rate, {0, size, nullptr});
      if (!own) return {};
      parts.push_back({own->saturated ? size : least_size(model, *own, size), *own});
      rate -= own->rate;
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.size > b.size; });
    return parts;
  }

  // The smallest size, from that one downwards, in which the same rounds hold.
  [[nodiscard]] std::uint32_t least_size(std::size_t model, const OwnRounds& own,
                                         std::uint32_t size) const {
    if (sizes_ == Sizes::whole) return size;
    while (size > 0) {
      const RoundPlace smaller{0, size - 1, nullptr};
      if (times_->max_batch(model, smaller) < own.batch) break;
      const double latency_ms = times_->alone_ms(model, own.batch, smaller);
      if (latency_ms > own.duty_cycle_ms || latency_ms + own.duty_cycle_ms > slo_ms(model)) break;
      --size;
    }
    return size;
  }

  // Changes nothing unless all parts fit.
  bool place_parts(std::size_t model) {
    const std::vector<Part> parts = parts_of(model);
    if (parts.empty()) return false;
    const RoundDevices before = devices_;
    const double unplaced_before = unplaced_[model];
    for (const Part& part : parts) {
      const std::optional<GpuletIndex> found = fit_of(model, part);
      if (!found || !place_part(model, part, *found)) {
        devices_ = before;
        unplaced_[model] = unplaced_before;
        return false;
      }
    }
    return is_placed(model);
  }

  // Of the free gpulets that hold the part beside their neighbour, and their neighbour beside it:
  // the last whole device or gpulet of its size, else the smallest.
  [[nodiscard]] std::optional<GpuletIndex> fit_of(std::size_t model, const Part& part) {
    std::optional<GpuletIndex> best;
    int least = 0;
    for (const GpuletIndex& index : devices_.free_gpulets()) {
      const RoundPlace place = devices_.place(index);
      const int excess = devices_.percent(index) - percent_of(part.size);
      if (devices_.class_of(index) != 0 || excess < 0 ||
          !devices_.memory_fits(model, index.device) ||
          part.rounds.batch > times_->max_batch(model, place))
        continue;
      if (times_->latency_ms(model, part.rounds.batch, place) + part.rounds.duty_cycle_ms >
              slo_ms(model) * kFullLoad ||
          !neighbour_tolerates(index, model, part.rounds))
        continue;
      const int cost = splits(index, part) ? 0 : excess;
      if (best && cost > least) continue;
      best = index;
      least = cost;
    }
    return best;
  }

  [[nodiscard]] bool splits(const GpuletIndex& index, const Part& part) const {
    return sizes_ == Sizes::all && devices_.class_of(index) == 0 &&
           devices_.can_split(index, part.size);
  }

  [[nodiscard]] int percent_of(std::uint32_t size) const {
    return context().classes().front().sizes[size];
  }

  // Whether two duty cycles and what the newcomer costs are within the neighbour's objectives.
  [[nodiscard]] bool neighbour_tolerates(const GpuletIndex& index, std::size_t model,
                                         const OwnRounds& rounds) {
    const RoundGpulet* const neighbour = devices_.neighbour(index);
    if (neighbour == nullptr) return true;
    const RoundGpulet newcomer{devices_.at(index).size,
                               rounds.duty_cycle_ms,
                               rounds.saturated,
                               {{static_cast<std::uint32_t>(model), rounds.batch, rounds.rate, 1}}};
    const RoundPlace place{devices_.class_of(index), neighbour->size, &newcomer};
    return std::all_of(
        neighbour->slots.begin(), neighbour->slots.end(), [&](const RoundSlot& slot) {
          const double more_ms = times_->latency_ms(slot.model, slot.batch, place) -
                                 times_->alone_ms(slot.model, slot.batch, place);
          return more_ms + 2 * neighbour->duty_cycle_ms <= slo_ms(slot.model) * kFullLoad;
        });
  }

  bool place_part(std::size_t model, const Part& part, const GpuletIndex& index) {
    OwnRounds rounds = part.rounds;
    if (splits(index, part)) {
      devices_.split(index, part.size);
    } else if (devices_.percent(index) > percent_of(part.size)) {
      const std::optional<OwnRounds> own =
          times_->own_rounds(model, rounds.rate, devices_.place(index));
      if (!own) return false;
      rounds = *own;
    }
    devices_.occupy(index, model, rounds, *times_);
    take(model, rounds.rate);
    return shrink_all(index.device);
  }

  // ---- free gpulets

  void take_free_gpulets(std::size_t model) {
    std::vector<GpuletIndex> free = devices_.free_gpulets();
    while (!free.empty() && !is_placed(model)) {
      const auto largest =
          std::max_element(free.begin(), free.end(), [this](const auto& a, const auto& b) {
            return devices_.percent(a) < devices_.percent(b);
          });
      const GpuletIndex index = *largest;
      free.erase(largest);
      if (!devices_.memory_fits(model, index.device)) continue;
      if (const std::vector<Part> parts = parts_of(model);
          !parts.empty() && splits(index, parts.front())) {
        devices_.split(index, parts.front().size);
        free.push_back({index.device, 1 - index.gpulet});
      }
      const std::optional<OwnRounds> own =
          times_->own_rounds(model, unplaced_[model], devices_.place(index));
      if (!own) continue;
      const RoundDevices before = devices_;
      devices_.occupy(index, model, *own, *times_);
      if (shrink_all(index.device)) {
        take(model, own->rate);
      } else {
        devices_ = before;
      }
    }
    devices_.join_free_devices();
  }

  // One gpulet in place of the model's unsaturated ones and of what it still needs, if there is
  // one.
  void join_unsaturated(std::size_t model) {
    std::vector<GpuletIndex> own;
    double rate = unplaced_[model];
    double least_most = 0;
    std::optional<std::uint32_t> size;
    for (const GpuletIndex& index : devices_.all()) {
      const RoundGpulet& gpulet = devices_.at(index);
      if (gpulet.saturated || gpulet.slots.size() != 1 || gpulet.slots.front().model != model)
        continue;
      own.push_back(index);
      rate += gpulet.slots.front().rate;
      const double most = context().curve(model, devices_.class_of(index), gpulet.size).max_rate;
      if (size && most >= least_most) continue;
      least_most = most;
      size = gpulet.size;
    }
    if (own.empty() || (own.size() == 1 && is_placed(model)) || least_most < rate) return;
    const RoundDevices before = devices_;
    for (const GpuletIndex& index : own) devices_.release(index);
    for (const GpuletIndex& index : devices_.free_gpulets()) {
      if (devices_.at(index).size != *size || !devices_.memory_fits(model, index.device)) continue;
      const std::optional<OwnRounds> rounds =
          times_->own_rounds(model, rate, devices_.place(index));
      if (!rounds || rounds->rate < rate - kRateSlack) continue;
      devices_.occupy(index, model, *rounds, *times_);
      if (!shrink_all(index.device)) break;
      unplaced_[model] = std::max(0.0, rate - rounds->rate);
      devices_.join_free_devices();
      return;
    }
    devices_ = before;
  }

  // ---- sharing time

  [[nodiscard]] double busy_part(const GpuletIndex& index) const {
    const RoundGpulet& gpulet = devices_.at(index);
    if (gpulet.saturated) return 1;
    double busy_ms = 0;
    for (const RoundSlot& slot : gpulet.slots)
      busy_ms += times_->alone_ms(slot.model, slot.batch, devices_.place(index)) * slot.slowdown;
    return busy_ms / gpulet.duty_cycle_ms;
  }

  void share_time(std::size_t model) {
    std::vector<std::pair<double, GpuletIndex>> candidates;
    for (const GpuletIndex& index : devices_.all()) {
      const RoundGpulet& gpulet = devices_.at(index);
      if (gpulet.is_free() || gpulet.slots.size() >= kMostModelsShared || busy_part(index) >= 1)
        continue;
      candidates.emplace_back(busy_part(index), index);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    bool found = true;
    while (found && !is_placed(model)) {
      found = std::any_of(candidates.begin(), candidates.end(),
                          [&](const auto& one) { return join(model, one.second); });
    }
  }

  // Lets the model take turns with the gpulet's own ones, in a duty cycle that is no longer.
  bool join(std::size_t model, const GpuletIndex& index) {
    const RoundGpulet& present = devices_.at(index);
    const RoundPlace place = devices_.place(index);
    const double rate = unplaced_[model];
    const double left = 1 - busy_part(index);
    if (std::any_of(present.slots.begin(), present.slots.end(),
                    [model](const RoundSlot& one) { return one.model == model; }) ||
        !devices_.memory_fits(model, index.device))
      return false;
    const auto arrivals = static_cast<std::uint32_t>(present.duty_cycle_ms * rate / 1000);
    std::uint32_t batch = std::min(arrivals, times_->max_batch(model, place));
    const auto fits = [&](std::uint32_t tried) {
      const double fills_ms = 1000.0 * tried / rate;
      const double runs_ms = times_->latency_ms(model, tried, place);
      return fills_ms + runs_ms < slo_ms(model) && runs_ms < left * fills_ms;
    };
    while (batch > 0 && !fits(batch)) --batch;
    if (batch == 0) return false;
    RoundGpulet shared = present;
    shared.saturated = false;
    shared.duty_cycle_ms = std::min(shared.duty_cycle_ms, 1000.0 * batch / rate);
    shared.slots.push_back({static_cast<std::uint32_t>(model), batch, rate, 1});
    double busy_ms = 0;
    for (RoundSlot& slot : shared.slots) {
      if (slot.model != model) {
        const auto whole = static_cast<std::uint32_t>(shared.duty_cycle_ms * slot.rate / 1000);
        slot.batch = std::clamp(whole, 1U, times_->max_batch(slot.model, place));
        slot.rate = std::min(slot.rate, 1000.0 * slot.batch / shared.duty_cycle_ms);
      }
      slot.slowdown = times_->slowdown(slot.model, slot.batch, place);
      busy_ms += times_->alone_ms(slot.model, slot.batch, place) * slot.slowdown;
    }
    if (busy_ms > shared.duty_cycle_ms) return false;
    for (const RoundSlot& slot : shared.slots) {
      if (busy_ms + shared.duty_cycle_ms > slo_ms(slot.model) * kFullLoad) return false;
    }
    devices_.at(index) = std::move(shared);
    take(model, rate);
    return true;
  }

  // ---- interference

  // Reduces the batches of the device's gpulets to what their neighbours leave them. Returns false
  // where one of them is left without any.
  [[nodiscard]] bool shrink_all(std::size_t device) {
    for (const GpuletIndex& index : devices_.all()) {
      if (index.device != device || devices_.at(index).is_free()) continue;
      const bool holds = devices_.at(index).saturated ? shrink_saturated(index) : shrink(index);
      if (!holds) return false;
    }
    return true;
  }

  [[nodiscard]] bool shrink_saturated(const GpuletIndex& index) {
    RoundGpulet& gpulet = devices_.at(index);
    RoundSlot& slot = gpulet.slots.front();
    const RoundPlace place = devices_.place(index);
    while (slot.batch > 0 &&
           2 * times_->latency_ms(slot.model, slot.batch, place) > slo_ms(slot.model) * kFullLoad)
      --slot.batch;
    if (slot.batch == 0) return false;
    slot.slowdown = times_->slowdown(slot.model, slot.batch, place);
    gpulet.duty_cycle_ms = times_->alone_ms(slot.model, slot.batch, place) * slot.slowdown;
    slot.rate = std::min(slot.rate, 1000.0 * slot.batch / gpulet.duty_cycle_ms);
    return true;
  }

  [[nodiscard]] bool shrink(const GpuletIndex& index) {
    RoundGpulet& gpulet = devices_.at(index);
    const RoundPlace place = devices_.place(index);
    double busy_ms = 0;
    for (RoundSlot& slot : gpulet.slots) {
      slot.slowdown = times_->slowdown(slot.model, slot.batch, place);
      busy_ms += times_->alone_ms(slot.model, slot.batch, place) * slot.slowdown;
    }
    const bool holds =
        std::all_of(gpulet.slots.begin(), gpulet.slots.end(), [&](const RoundSlot& slot) {
          return busy_ms + gpulet.duty_cycle_ms <= slo_ms(slot.model) * kObjectiveSlack;
        });
    if (holds) return true;
    double duty_cycle_ms = gpulet.duty_cycle_ms;
    for (RoundSlot& slot : gpulet.slots) {
      const double others_ms =
          busy_ms - times_->alone_ms(slot.model, slot.batch, place) * slot.slowdown;
      const std::uint32_t planned = slot.batch;
      double own_cycle_ms = gpulet.duty_cycle_ms;
      while (others_ms + times_->latency_ms(slot.model, slot.batch, place) + own_cycle_ms >
             slo_ms(slot.model)) {
        if (--slot.batch == 0) return false;
        own_cycle_ms = gpulet.duty_cycle_ms * slot.batch / planned;
      }
      duty_cycle_ms = std::min(duty_cycle_ms, own_cycle_ms);
    }
    gpulet.duty_cycle_ms = duty_cycle_ms;
    for (RoundSlot& slot : gpulet.slots) {
      slot.slowdown = times_->slowdown(slot.model, slot.batch, place);
      slot.rate = std::min(slot.rate, 1000.0 * slot.batch / duty_cycle_ms);
    }
    return true;
  }

  RoundTimes* times_;
  Sizes sizes_;
  RoundDevices devices_;
  std::vector<double> unplaced_;  // parallel to the context's models
};

constexpr double kFewArrivals = 550;  // requests/s

double raised_rate(double rate) {
  if (rate > kFewArrivals) return rate * 1.1;
  if (rate <= 0) return 0;
  double probability = std::exp(-rate);
  double sum = probability;
  std::uint32_t arrivals = 0;
  while (sum < 0.99) {
    ++arrivals;
    probability *= rate / arrivals;
    sum += probability;
  }
  return std::max(1U, arrivals);
}

// Takes back the factor by which each model's demand was raised.
void lower_rates(const PlanInput& raised, const PlanInput& input, Plan* plan) {
  std::map<std::string_view, double> factor_of;
  for (std::size_t at = 0; at < input.demands.size(); ++at) {
    if (input.demands[at].rate > 0)
      factor_of[input.demands[at].name] = input.demands[at].rate / raised.demands[at].rate;
  }
  for (PlannedGpulet& gpulet : plan->gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate *= factor_of.at(one.model);
  }
  for (Unserved& one : plan->unserved) one.rate *= factor_of.at(one.model);
}

Plan plan_shipped(const PlanInput& input, Sizes sizes) {
  PlanInput raised = input;
  if (input.options.headroom == Headroom::poisson) {
    for (ModelDemand& demand : raised.demands) demand.rate = raised_rate(demand.rate);
    raised.options.headroom = Headroom::none;
  }
  const PlanContext context(raised);
  RoundTimes times(context);
  ShippedScheduler scheduler(times, sizes);
  scheduler.run();
  Plan plan = scheduler.plan();
  lower_rates(raised, input, &plan);
  return plan;
}

}  // namespace

Plan ElasticShipped::plan(const PlanInput& input) { return plan_shipped(input, Sizes::all); }

Plan SbpShipped::plan(const PlanInput& input) { return plan_shipped(input, Sizes::whole); }

}  // namespace gpulet::research
