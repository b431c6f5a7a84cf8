#include "schedule/cover/least_slowdowns.h"

#include <algorithm>

namespace gpulet::schedule {
namespace {

// Pairs of batches to look at: some seconds.
double most_pairs(profile::InterferenceKind kind) {
  switch (kind) {
    case profile::InterferenceKind::inss:
    case profile::InterferenceKind::measured:
      return 1e7;
    default:
      return 6e8;
  }
}

}  // namespace

LeastSlowdowns::LeastSlowdowns(const PlanContext& context, std::uint32_t device_class)
    : context_(&context), device_class_(device_class) {
  const DeviceClass& known = context.classes()[device_class];
  if (known.interference == nullptr) return;
  for (std::uint32_t size = 0; size < known.sizes.size(); ++size) {
    const Share share{known.sizes[size]};
    for (std::uint32_t model = 0; model < context.models().size(); ++model) {
      const LatencyCurve& curve = context.curve(model, device_class, size);
      if (curve.max_batch == 0) continue;
      const ModelOnClass& measured = context.on_class(model, device_class);
      const auto add = [&](std::uint32_t batch) {
        batches_.push_back(known.interference->traits(context.models()[model]->name, batch, share));
      };
      // Between two measured batches a slowdown is linear, so the least one is at an end.
      add(1);
      for (const std::uint32_t batch : measured.measured) {
        if (batch > 1 && measured.profile->latency.latency_ms(batch, share)) add(batch);
        if (batch >= curve.max_batch) break;
      }
    }
    ends_.push_back(batches_.size());
  }
  double pairs = 0;
  std::size_t first = 0;
  for (std::uint32_t size = 0; size < ends_.size(); ++size) {
    pairs += static_cast<double>(ends_[size] - first) * static_cast<double>(beside(size).size());
    first = ends_[size];
  }
  if (pairs > most_pairs(known.interference->kind())) batches_.clear();
}

std::span<const profile::BatchTraits> LeastSlowdowns::beside(std::uint32_t size) const {
  const std::vector<int>& sizes = context_->classes()[device_class_].sizes;
  const auto end = std::upper_bound(sizes.begin(), sizes.end(), kWholeDevice.percent - sizes[size]);
  if (end == sizes.begin()) return {};
  return std::span(batches_).first(ends_[static_cast<std::size_t>(end - sizes.begin()) - 1]);
}

std::vector<double> LeastSlowdowns::by_batch(std::uint32_t model, std::uint32_t size) const {
  const std::uint32_t max_batch = context_->curve(model, device_class_, size).max_batch;
  std::vector<double> slowdowns(max_batch, 1.0);
  if (batches_.empty() || max_batch == 0) return slowdowns;
  const DeviceClass& known = context_->classes()[device_class_];
  const ModelOnClass& measured = context_->on_class(model, device_class_);
  const std::string& name = context_->models()[model]->name;
  const Share share{known.sizes[size]};
  const std::span<const profile::BatchTraits> others = beside(size);
  // The least of each of two measured batches bounds those between them.
  std::uint32_t before_batch = 0;
  double before = profile::kMostSlowdown;
  for (const std::uint32_t batch : measured.measured) {
    if (before_batch >= max_batch) break;
    if (!measured.profile->latency.latency_ms(batch, share)) continue;
    const double here =
        known.interference->least_slowdown(known.interference->traits(name, batch, share), others);
    for (std::uint32_t at = before_batch + 1; at <= std::min(batch, max_batch); ++at) {
      const double part = static_cast<double>(at - before_batch) / (batch - before_batch);
      slowdowns[at - 1] = before_batch == 0 ? here : before + part * (here - before);
    }
    before_batch = batch;
    before = here;
  }
  for (std::uint32_t at = before_batch + 1; at <= max_batch; ++at) slowdowns[at - 1] = 1;
  return slowdowns;
}

}  // namespace gpulet::schedule
