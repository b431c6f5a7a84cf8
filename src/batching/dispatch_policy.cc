#include "gpulet/batching/dispatch_policy.h"

#include <algorithm>

namespace gpulet::batching {

std::uint32_t largest_batch_by(std::span<const Duration> execution, std::uint32_t requested,
                               Time start, Time deadline) {
  std::uint32_t count = std::max<std::uint32_t>(1, requested);
  while (count > 1 && start + execution[count - 1] > deadline) --count;
  return count;
}

Decision decide(const SlotView& slot, Time now) {
  if (slot.waiting == 0) return WaitUntil{kNever};
  const std::size_t largest = slot.execution.size();
  const auto count = static_cast<std::uint32_t>(std::min(slot.waiting, largest));
  const bool full = slot.waiting >= largest;
  const Time latest = slot.most_urgent - slot.execution[count - 1] - slot.allowance;
  const Time due = std::max(slot.yields ? latest : std::min(slot.turn, latest), slot.bind);
  if ((!full || slot.yields) && now < due) return WaitUntil{due};
  return Dispatch{
      largest_batch_by(slot.execution, count, slot.start + slot.allowance, slot.most_urgent)};
}

namespace {

Duration most_allowed(Duration execution) { return std::chrono::milliseconds(2) + execution / 4; }

}  // namespace

void Allowance::observe(Duration error, Duration execution) {
  const Duration most = 2 * most_allowed(execution);
  mean_ += (std::clamp(error, -most, most) - mean_) / kBatches;
}

Duration Allowance::for_execution(Duration execution) const {
  constexpr Duration kLeast = std::chrono::microseconds(500);
  return std::clamp(mean_, kLeast, most_allowed(execution));
}

void RateSplit::clear() { *this = RateSplit(); }

void RateSplit::join(Slot& slot) {
  slot.served_s = served_s_;
  rate_ += slot.rate;
}

bool RateSplit::ahead(const Slot& slot) const {
  constexpr double kRounding = 1e-9;
  return slot.rate > 0 && slot.served_s > served_s_ * (1 + kRounding) + kRounding;
}

void RateSplit::take(Slot& slot, std::size_t count, std::size_t largest_batch) {
  if (slot.rate <= 0) return;
  const double most_s = kMostBatches * static_cast<double>(largest_batch) / slot.rate;
  limit(slot, most_s);
  slot.served_s += static_cast<double>(count) / slot.rate;
  served_s_ += static_cast<double>(count) / rate_;
  limit(slot, most_s);
}

// Keeps the slot within `most_s` of the mean. The mean moves by the slot's weighted part of the
// change, so that it remains the mean of the slots.
void RateSplit::limit(Slot& slot, double most_s) {
  const double limited = std::clamp(slot.served_s, served_s_ - most_s, served_s_ + most_s);
  served_s_ += (limited - slot.served_s) * slot.rate / rate_;
  slot.served_s = limited;
}

double need_of(const ModelNeed& model, const NeedRule& rule) {
  // The mean of n times the device's time, over n = 0 .. queued - 1.
  const double ahead_s = to_seconds(model.device_time) *
                         static_cast<double>(std::max<std::size_t>(model.queued, 1) - 1) / 2;
  const double estimated_s = to_seconds(model.mean_waited) + ahead_s;
  const double weighted_s = model.response
                                ? rule.queued_weight * estimated_s +
                                      (1 - rule.queued_weight) * to_seconds(*model.response)
                                : estimated_s;
  const double set_point_s = rule.set_point * to_seconds(model.objective);
  return std::max(0.0, (weighted_s - set_point_s) / set_point_s);
}

std::optional<std::size_t> neediest(std::span<const ModelNeed> models, const NeedRule& rule,
                                    std::size_t last) {
  std::optional<std::size_t> best;
  double most = 0;
  for (std::size_t step = 1; step <= models.size(); ++step) {
    const std::size_t index = (last + step) % models.size();
    if (models[index].queued == 0) continue;
    const double need = need_of(models[index], rule);
    const bool better =
        !best || need > most || (need == most && models[index].queued > models[*best].queued);
    if (!better) continue;
    best = index;
    most = need;
  }
  return best;
}

std::optional<std::size_t> next_in_turn(std::span<const ModelNeed> models, std::size_t last) {
  for (std::size_t step = 1; step <= models.size(); ++step) {
    const std::size_t index = (last + step) % models.size();
    if (models[index].queued > 0) return index;
  }
  return std::nullopt;
}

}  // namespace gpulet::batching
