#include "schedule/round_probe.h"

#include <algorithm>
#include <limits>

#include "schedule/headroom_table.h"

namespace gpulet::schedule {

KnownRound::KnownRound(std::span<const BatchSlot> slots) : least_(slots.size(), 1) {
  if (slots.size() > SlotSums::kFew) {
    sums_.emplace(slots);
  } else {
    least_ = least_batches_in_turn(slots);
  }
}

std::vector<std::uint32_t> least_batches_in_turn(std::span<const BatchSlot> slots) {
  constexpr double kHardlyAny = std::numeric_limits<double>::min();
  const SlotsInTurn gpulet(slots, nullptr, kHardlyAny);
  std::vector<std::uint32_t> batches;
  batches.reserve(slots.size());
  for (std::size_t at = 0; at < slots.size(); ++at)
    batches.push_back(std::min(least_batch(gpulet, at, 0), slots[at].curve->max_batch));
  return batches;
}

double longest_round_ms(std::span<const BatchSlot> slots, std::size_t at, std::uint32_t batch) {
  const BatchSlot& slot = slots[at];
  const double overhead_ms = slots.size() == 1 ? 0 : kOverheadInTurnMs;
  return slot.slo_ms - slot.curve->latency_ms[batch - 1] - overhead_ms;
}

void KnownRound::added(std::span<const BatchSlot> slots, std::size_t at) {
  if (sums_ && sums_->covers(slots[at])) {
    sums_->add(slots[at]);
  } else if (slots.size() > SlotSums::kFew) {
    sums_.emplace(slots);
    room_.reset();
  }
  least_.insert(least_.begin() + static_cast<std::ptrdiff_t>(at), 1);
  if (critical_ >= at) ++critical_;
  adopt(slots, at);
}

void KnownRound::raised(std::span<const BatchSlot> slots, std::size_t at, double rate_before) {
  if (sums_) sums_->change(slots[at], rate_before);
  adopt(slots, at);
}

// Adopts what the last successful test found where it was of this slot.
void KnownRound::adopt(std::span<const BatchSlot> slots, std::size_t at) {
  const BatchSlot& slot = slots[at];
  const bool known = tried_ && tried_->slot.model == slot.model && tried_->slot.rate == slot.rate &&
                     tried_->slot.curve == slot.curve;
  if (known && tried_->least.empty() && room_) {
    room_->busy_ms = tried_->busy_ms;
    room_->longest_ms = tried_->longest_ms;
  } else {
    room_.reset();
    // A slot alone needs other batches than one that takes turns.
    if (known && slots.size() > 1 && tried_->least.size() == least_.size()) least_ = tried_->least;
  }
  tried_.reset();
  if (sums_ && !room_ && slots.size() >= next_room_) make_room(slots);
}

// A sixteenth more than the gpulet has. So a gpulet that is filled slot by slot looks at all of
// them a number of times that grows with the logarithm of their number, until it is nearly full.
void KnownRound::make_room(std::span<const BatchSlot> slots) {
  constexpr std::size_t kParts = 16;
  next_room_ = slots.size() + slots.size() / kParts + 1;
  Room room{sums_->times(1 + 1.0 / kParts), 0, std::numeric_limits<double>::infinity()};
  const SlotsInTurn gpulet(slots, &room.sums);
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const std::uint32_t batch = least_batch(gpulet, at, 0, least_[at]);
    if (batch > slots[at].curve->max_batch) return;
    room.busy_ms += slots[at].curve->latency_ms[batch - 1];
    room.longest_ms = std::min(room.longest_ms, longest_round_ms(slots, at, batch));
    if (room.busy_ms > room.longest_ms) return;
  }
  room_ = std::move(room);
}

RoundProbe::RoundProbe(std::span<BatchSlot> slots, std::size_t at, KnownRound* known,
                       std::optional<double> rate_before)
    : slots_(slots), at_(at), known_(known), rate_before_(rate_before), critical_(at) {
  servable_ = slots.size() <= kMostModelsOfGpulet &&
              std::all_of(slots.begin(), slots.end(),
                          [](const BatchSlot& slot) { return slot.curve->max_batch > 0; });
  if (known_ == nullptr || slots.size() == 1) {
    least_.assign(slots.size(), 1);
    return;
  }
  least_ = known_->least_;
  if (!rate_before_) least_.insert(least_.begin() + static_cast<std::ptrdiff_t>(at), 1);
  critical_ = known_->critical_ + (!rate_before_ && known_->critical_ >= at ? 1 : 0);
  if (critical_ >= slots.size()) critical_ = at;
}

bool RoundProbe::has_room(const SlotSums& sums) {
  const std::optional<KnownRound::Room>& room = known_->room_;
  if (!room || !sums.at_most(room->sums)) return false;
  const LatencyCurve& curve = *slots_[at_].curve;
  const SlotsInTurn gpulet(slots_, &room->sums);
  const std::uint32_t batch = least_batch(gpulet, at_, 0, least_[at_]);
  if (batch > curve.max_batch) return false;
  // A slot that has been there before counts twice.
  const double busy_ms = room->busy_ms + curve.latency_ms[batch - 1];
  const double longest_ms = std::min(room->longest_ms, longest_round_ms(slots_, at_, batch));
  if (busy_ms > longest_ms) return false;
  known_->tried_ = {slots_[at_], {}, busy_ms, longest_ms};
  return true;
}

std::uint32_t RoundProbe::most_batch(std::size_t at) const {
  const LatencyCurve& curve = *slots_[at].curve;
  const double others_ms = busy_ms_ - curve.latency_ms[batches_[at] - 1];
  std::uint32_t holds = batches_[at];
  std::uint32_t above = curve.max_batch + 1;
  while (above - holds > 1) {
    const std::uint32_t batch = holds + (above - holds) / 2;
    const double longest_ms = std::min(longest_ms_, longest_round_ms(slots_, at, batch));
    const bool within =
        others_ms + curve.latency_ms[batch - 1] <= longest_ms * (1 + kRoundingSlack);
    (within ? holds : above) = batch;
  }
  return holds;
}

bool RoundProbe::settle(const SlotsInTurn& gpulet, std::size_t at) {
  const std::uint32_t before = batches_[at];
  const std::uint32_t batch = least_batch(gpulet, at, 0, before, most_batch(at));
  const LatencyCurve& curve = *slots_[at].curve;
  if (batch > curve.max_batch) {
    critical_ = at;
    return false;
  }
  if (batch == before) return true;
  batches_[at] = batch;
  busy_ms_ += curve.latency_ms[batch - 1] - curve.latency_ms[before - 1];
  longest_ms_ = std::min(longest_ms_, longest_round_ms(slots_, at, batch));
  return busy_ms_ <= longest_ms_ * (1 + kRoundingSlack);
}

bool RoundProbe::holds(double rate) {
  slots_[at_].rate = rate;
  if (!servable_) return false;
  // With the least batches of lower rates.
  batches_ = least_;
  busy_ms_ = 0;
  longest_ms_ = std::numeric_limits<double>::infinity();
  for (std::size_t at = 0; at < slots_.size(); ++at) {
    busy_ms_ += slots_[at].curve->latency_ms[batches_[at] - 1];
    longest_ms_ = std::min(longest_ms_, longest_round_ms(slots_, at, batches_[at]));
  }
  if (busy_ms_ > longest_ms_ * (1 + kRoundingSlack)) return false;
  std::optional<SlotSums> sums;
  if (known_ != nullptr && known_->sums_) {
    if (rate_before_ || known_->sums_->covers(slots_[at_])) {
      sums = known_->sums_;
      rate_before_ ? sums->change(slots_[at_], *rate_before_) : sums->add(slots_[at_]);
    } else {
      sums.emplace(slots_);
    }
    if (has_room(*sums)) return true;
  }
  const SlotsInTurn gpulet(slots_, sums ? &*sums : nullptr);
  const std::size_t first = critical_;
  bool held = settle(gpulet, first) && (first == at_ || settle(gpulet, at_));
  for (std::size_t at = 0; held && at < slots_.size(); ++at)
    held = at == first || at == at_ || settle(gpulet, at);
  if (known_ != nullptr && critical_ != at_) known_->critical_ = known_index(critical_);
  if (!held) return false;
  // The sum of the batches in their order, as a round has it.
  busy_ms_ = 0;
  for (std::size_t at = 0; at < slots_.size(); ++at)
    busy_ms_ += slots_[at].curve->latency_ms[batches_[at] - 1];
  const double slack = sums ? 1 : 1 + kRoundingSlack;
  if (busy_ms_ > longest_ms_ * slack) return false;
  least_ = batches_;
  if (known_ != nullptr) known_->tried_ = {slots_[at_], batches_, 0, 0};
  return true;
}

double highest_rate(RoundProbe& probe, double least, double most) {
  constexpr int kHalvings = 12;
  least = std::max(least, most / (1 << kHalvings));
  if (!(most > least) || !probe.holds(least)) return 0;
  if (probe.holds(most)) return most;
  double low = 0;
  double high = most;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    if (middle <= least || probe.holds(middle)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace gpulet::schedule
