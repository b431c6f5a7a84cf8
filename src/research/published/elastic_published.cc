// elastic-published, elastic-preprint-published and ideal-published: the algorithms of gpulet (ATC
// 2022) and of its preprint, gpu-let, as the papers print them.
//
// ---- elastic-published: section 4.3, algorithm 1
//
// Models come in ascending order of rate * SLO. Each takes the smallest free gpulet that holds
// min(p_eff, p_req), of a whole device only as much as that, until its rate is placed. The gpulet
// then shares its time with an earlier one if a common duty cycle keeps all objectives.
//
// It differs from this project's `elastic` and `elastic-one-pass`:
//  - Line 20 checks the newcomer beside its neighbour. The neighbour is not checked, and keeps the
//    batch that it was given: it may miss its objective.
//  - Two gpulets share their time at the smaller of their duty cycles (section 2.2), and no other
//    is tried.
//  - A free gpulet that is smaller than min(p_eff, p_req) is never used.
//
// Choices where the paper leaves one:
//  - A batch may take half of the SLO: the duty cycle of a saturated gpulet is the batch's latency.
//  - p_eff is the knee of the rate over the size (knee_size), for the model alone.
//  - Of the gpulets that can share their time with the new one, the one wins that is busy for the
//    largest part of its duty cycle afterwards, as in Nexus.
//  - Any batch of the neighbour's models can coincide, so the worst slowdown by one of them counts.
//
// ---- elastic-preprint-published: gpu-let, section 4.3, algorithm 1
//
// The same with three differences: the heaviest rate comes first (line 3), min(p_eff, p_req) is
// that of the model's whole rate (line 10), and the first gpulet that can share its time does
// (lines 33 to 38). This project's `elastic-preprint` also keeps the neighbours' objectives and
// serves rests.
//
// ---- ideal-published: section 5.2
//
// The same algorithm on every combination of devices that are divided in advance (2:8, 4:6, 5:5 or
// not at all), until one serves everything. Nothing is divided further, so a model may take a
// gpulet that is larger than it needs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "research/policies.h"
#include "research/published/rounds.h"
#include "schedule/candidates.h"
#include "schedule/ideal.h"
#include "schedule/plan_output.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

// Whether a whole device may be divided (line 17).
enum class Splitting { as_needed, none };
enum class Paper { gpulet, preprint };

class PrintedPartitioning {
 public:
  // `times` outlives the object.
  PrintedPartitioning(RoundTimes& times, RoundDevices devices, Splitting splitting,
                      Paper paper = Paper::gpulet)
      : times_(&times), devices_(std::move(devices)), splitting_(splitting), paper_(paper) {
    for (const ModelDemand* demand : context().models()) unplaced_.push_back(demand->rate);
  }

  // Lines 2 to 12. Returns whether everything is placed.
  bool run() {
    const std::vector<std::size_t> order =
        paper_ == Paper::gpulet ? models_by(context(), Order::lightest_first, rate_times_slo)
                                : models_by(context(), Order::heaviest_first, rate_of);
    for (const std::size_t model : order) {
      while (unplaced_[model] > 0 && place_part(model)) {
      }
    }
    return unplaced_part() == 0;
  }

  [[nodiscard]] Plan plan() const { return devices_.plan(unplaced_); }
  // The sum over models of the unplaced fraction of each demand.
  [[nodiscard]] double unplaced_part() const {
    double part = 0;
    for (std::size_t model = 0; model < unplaced_.size(); ++model)
      part += unplaced_[model] / context().models()[model]->rate;
    return part;
  }

 private:
  [[nodiscard]] const PlanContext& context() const { return times_->context(); }

  // Lines 5 to 10. Returns false where no free gpulet is large enough.
  bool place_part(std::size_t model) {
    const std::optional<GpuletIndex> found = best_fit(model, ideal_sizes(model));
    if (!found) return false;
    const std::optional<OwnRounds> own =
        times_->own_rounds(model, unplaced_[model], devices_.place(*found));
    devices_.occupy(*found, model, *own, *times_);
    unplaced_[model] -= own->rate;
    if (unplaced_[model] <= kRoundingSlack * context().models()[model]->rate) unplaced_[model] = 0;
    share_time(*found);
    if (splitting_ == Splitting::as_needed) devices_.join_free_devices();
    return true;
  }

  // Lines 6 to 8.
  [[nodiscard]] WantedSizes ideal_sizes(std::size_t model) const {
    const double rate =
        paper_ == Paper::gpulet ? unplaced_[model] : context().models()[model]->rate;
    WantedSizes sizes(context().classes().size());
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      sizes[index] = knee_size(context(), model, index);
      const auto required = required_size(context(), model, index, rate);
      if (sizes[index] && required) sizes[index] = std::min(*sizes[index], *required);
    }
    return sizes;
  }

  // Lines 14 to 26. A device that was divided in vain becomes whole again.
  [[nodiscard]] std::optional<GpuletIndex> best_fit(std::size_t model, const WantedSizes& wanted) {
    std::vector<GpuletIndex> free = devices_.free_gpulets();
    std::stable_sort(free.begin(), free.end(), [this](const GpuletIndex& a, const GpuletIndex& b) {
      return devices_.percent(a) < devices_.percent(b);
    });
    for (const GpuletIndex& index : free) {
      const std::optional<std::uint32_t>& size = wanted[devices_.class_of(index)];
      if (!size || devices_.at(index).size < *size || !devices_.memory_fits(model, index.device))
        continue;
      const bool splits = splitting_ == Splitting::as_needed && devices_.can_split(index, *size);
      if (splits) devices_.split(index, *size);
      if (times_->saturating_batch(model, devices_.place(index)) > 0) return index;
      if (splits) devices_.join_free_devices();
    }
    return std::nullopt;
  }

  struct Merged {
    GpuletIndex kept;
    GpuletIndex freed;
    RoundGpulet gpulet;
    double busy_part = 0;  // of the duty cycle
  };

  // Line 22: the new gpulet and an earlier one become one, of the larger size.
  void share_time(const GpuletIndex& newcomer) {
    std::optional<Merged> best;
    for (const GpuletIndex& other : devices_.all()) {
      if (other == newcomer || devices_.at(other).is_free() ||
          devices_.class_of(other) != devices_.class_of(newcomer))
        continue;
      const bool keeps_other = devices_.at(other).size >= devices_.at(newcomer).size;
      std::optional<Merged> merged = keeps_other ? merge(other, newcomer) : merge(newcomer, other);
      if (merged && (!best || merged->busy_part > best->busy_part)) best = std::move(merged);
      if (best && paper_ == Paper::preprint) break;
    }
    if (!best) return;
    devices_.at(best->kept) = std::move(best->gpulet);
    devices_.release(best->freed);
  }

  // The models of both in `kept`, with the smaller of both duty cycles. Empty where the batches do
  // not fit into it, or an objective does not hold.
  [[nodiscard]] std::optional<Merged> merge(const GpuletIndex& kept, const GpuletIndex& freed) {
    Merged merged{kept, freed, devices_.at(kept), 0};
    RoundGpulet& gpulet = merged.gpulet;
    gpulet.duty_cycle_ms = std::min(gpulet.duty_cycle_ms, devices_.at(freed).duty_cycle_ms);
    gpulet.saturated = false;
    for (const RoundSlot& slot : devices_.at(freed).slots) {
      const auto same =
          std::find_if(gpulet.slots.begin(), gpulet.slots.end(),
                       [&slot](const RoundSlot& own) { return own.model == slot.model; });
      if (same != gpulet.slots.end()) {
        same->rate += slot.rate;
      } else if (kept.device == freed.device || devices_.memory_fits(slot.model, kept.device)) {
        gpulet.slots.push_back(slot);
      } else {
        return std::nullopt;
      }
    }
    if (gpulet.slots.size() > kMostModelsOfGpulet) return std::nullopt;
    RoundPlace place = devices_.place(kept);
    if (kept.device == freed.device) place.beside = nullptr;
    double busy_ms = 0;
    for (RoundSlot& slot : gpulet.slots) {
      const double arrivals = slot.rate * gpulet.duty_cycle_ms / 1000;
      slot.batch =
          std::max(1U, static_cast<std::uint32_t>(std::ceil(arrivals * (1 - kRoundingSlack))));
      if (slot.batch > times_->max_batch(slot.model, place)) return std::nullopt;
      slot.slowdown = times_->slowdown(slot.model, slot.batch, place);
      const double latency_ms = times_->alone_ms(slot.model, slot.batch, place) * slot.slowdown;
      const double slo_ms = context().models()[slot.model]->slo_ms;
      if (gpulet.duty_cycle_ms + latency_ms > slo_ms * kFullLoad) return std::nullopt;
      busy_ms += latency_ms;
    }
    if (busy_ms > gpulet.duty_cycle_ms * kFullLoad) return std::nullopt;
    merged.busy_part = busy_ms / gpulet.duty_cycle_ms;
    return merged;
  }

  RoundTimes* times_;
  RoundDevices devices_;
  Splitting splitting_;
  Paper paper_;
  std::vector<double> unplaced_;  // parallel to the context's models
};

// One device undivided, and every way to divide it into two gpulets that leave nothing over.
std::vector<Layout> printed_layouts(const DeviceClass& known) {
  const auto whole = static_cast<std::uint32_t>(known.sizes.size() - 1);
  std::vector<Layout> layouts{{whole}};
  if (known.example->max_partitions < 2) return layouts;
  for (std::uint32_t larger = 0; larger < whole; ++larger) {
    for (std::uint32_t smaller = 0; smaller <= larger; ++smaller) {
      if (known.sizes[larger] + known.sizes[smaller] == kWholeDevice.percent)
        layouts.push_back({larger, smaller});
    }
  }
  return layouts;
}

// Devices of these layouts, in the order of the context's devices.
std::vector<RoundDevice> divided(const PlanContext& context, const Combination& combination) {
  std::vector<RoundDevice> devices;
  std::vector<bool> used(combination.size(), false);
  for (std::uint32_t device = 0; device < combination.size(); ++device) {
    const std::uint32_t device_class = context.class_of(device);
    RoundDevice& made = devices.emplace_back(RoundDevice{device_class, {}});
    for (std::size_t at = 0; at < combination.size(); ++at) {
      if (used[at] || combination[at].device_class != device_class) continue;
      used[at] = true;
      for (const std::uint32_t size : *combination[at].layout)
        made.gpulets.push_back(RoundGpulet{.size = size});
      break;
    }
  }
  return devices;
}

// The paper has 35 combinations of four devices.
constexpr double kMostPrintedCombinations = 10'000;

}  // namespace

Plan ElasticPublished::plan(const PlanInput& input) {
  const PlanContext context(input);
  RoundTimes times(context);
  PrintedPartitioning made(times, RoundDevices(context), Splitting::as_needed);
  static_cast<void>(made.run());
  return made.plan();
}

Plan ElasticPreprintPublished::plan(const PlanInput& input) {
  const PlanContext context(input);
  RoundTimes times(context);
  PrintedPartitioning made(times, RoundDevices(context), Splitting::as_needed, Paper::preprint);
  static_cast<void>(made.run());
  return made.plan();
}

Plan IdealPublished::plan(const PlanInput& input) {
  const PlanContext context(input);
  std::vector<std::vector<Layout>> layouts;
  for (const DeviceClass& known : context.classes()) layouts.push_back(printed_layouts(known));
  if (count_combinations(context, layouts) > kMostPrintedCombinations) {
    Plan plan = ElasticPublished::plan(input);
    plan.notes.emplace_back(
        "devices can be divided in too many ways: this is the plan of elastic-published");
    return plan;
  }
  RoundTimes times(context);
  std::optional<PrintedPartitioning> best;
  any_combination(context, layouts, [&](const Combination& combination) {
    PrintedPartitioning made(times, RoundDevices(context, divided(context, combination)),
                             Splitting::none);
    const bool serves_all = made.run();
    if (!best || made.unplaced_part() < best->unplaced_part()) best = std::move(made);
    return serves_all;
  });
  return best ? best->plan() : ElasticPublished::plan(input);
}

}  // namespace gpulet::research
