#include "schedule/fit_screen.h"

#include <algorithm>
#include <limits>

#include "schedule/headroom_table.h"
#include "schedule/random_cycle.h"
#include "schedule/round_probe.h"

namespace gpulet::schedule {
namespace {

// The part of a cycle of that length that the slot takes.
double load_in(const BatchSlot& slot, double cycle_ms) {
  return busy_of(*slot.curve, rate_per_ms(slot) * cycle_ms).ms / cycle_ms;
}

}  // namespace

bool FitScreen::may_fit(std::size_t gpulet, std::size_t model, double rate) {
  const BuilderGpulet& host = builder_->gpulets()[gpulet];
  const LatencyCurve& curve = builder_->curve(model, host);
  if (!curve.random_arrivals || host.slots.empty() || host.slots.size() > SlotSums::kFew)
    return true;
  if (curve.max_batch == 0) return false;
  const BatchSlot newcomer = builder_->slot(model, curve, rate);
  BesideLoad& present = batches_of(gpulet);
  BesideLoad& added = batches_of(newcomer);
  double longest_ms = std::numeric_limits<double>::infinity();
  const auto has_round = [&](const LeastBatches& one, const LeastBatches& other) {
    longest_ms = std::min(one.longest_ms, other.longest_ms);
    return one.busy_ms + other.busy_ms <= longest_ms * (1 + kRoundingSlack);
  };
  if (!has_round(present.at(0, host.slots), added.at(0, {&newcomer, 1}))) return false;
  // A model takes the least part of the longest cycle, and hardly any cycle is longer than a round.
  // Beside a greater load batches are larger, so the longest round is shorter.
  constexpr int kMostSteps = 4;
  double before_ms = std::numeric_limits<double>::infinity();
  for (int step = 0; step < kMostSteps && longest_ms < before_ms; ++step) {
    before_ms = longest_ms;
    const double added_load = load_in(newcomer, longest_ms);
    double load = 0;
    for (const BatchSlot& slot : host.slots) load += load_in(slot, longest_ms);
    if (load + added_load > kFullLoad ||
        !has_round(present.at(added_load, host.slots), added.at(load, {&newcomer, 1})))
      return false;
  }
  return true;
}

const LeastBatches& FitScreen::BesideLoad::at(double load, std::span<const BatchSlot> slots) {
  const auto level = std::min(kLevels - 1, static_cast<std::size_t>(load * kLevels));
  std::optional<LeastBatches>& known = levels_[level];
  if (known) return *known;
  // None at all would mean that the slots need not take turns.
  const double least = std::numeric_limits<double>::min();
  const double beside = std::max(least, static_cast<double>(level) / kLevels);
  const SlotsInTurn gpulet(slots, nullptr, beside);
  LeastBatches& batches = known.emplace();
  batches.longest_ms = std::numeric_limits<double>::infinity();
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const LatencyCurve& curve = *slots[at].curve;
    const std::uint32_t batch = least_batch(gpulet, at, 0);
    if (batch > curve.max_batch) {
      batches.busy_ms = std::numeric_limits<double>::infinity();
      break;
    }
    const double batch_ms = curve.latency_ms[batch - 1];
    batches.busy_ms += batch_ms;
    batches.longest_ms =
        std::min(batches.longest_ms, slots[at].slo_ms - batch_ms - kOverheadInTurnMs);
  }
  return batches;
}

FitScreen::BesideLoad& FitScreen::batches_of(std::size_t gpulet) {
  const BuilderGpulet& host = builder_->gpulets()[gpulet];
  if (gpulets_.size() <= gpulet) gpulets_.resize(builder_->gpulets().size());
  Gpulet& known = gpulets_[gpulet];
  // Every change of the slots or their curves changes the load.
  if (known.slots != host.slots.size() || known.load != host.load)
    known = {host.slots.size(), host.load, {}};
  return known.batches;
}

FitScreen::BesideLoad& FitScreen::batches_of(const BatchSlot& newcomer) {
  if (newcomer_.curve != newcomer.curve || newcomer_.rate != newcomer.rate)
    newcomer_ = {newcomer.curve, newcomer.rate, {}};
  return newcomer_.batches;
}

}  // namespace gpulet::schedule
