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

// Calls visit(batch) for the batches of the model at the size that count. Between two measured
// batches a slowdown is linear, so the least one is at an end.
template <typename Visit>
void for_batches(const PlanContext& context, std::uint32_t device_class, std::uint32_t model,
                 std::uint32_t size, const Visit& visit) {
  const LatencyCurve& curve = context.curve(model, device_class, size);
  if (curve.max_batch == 0) return;
  const ModelOnClass& known = context.on_class(model, device_class);
  const Share share{context.classes()[device_class].sizes[size]};
  visit(1U);
  for (const std::uint32_t batch : known.measured) {
    if (batch > 1 && known.profile->latency.latency_ms(batch, share)) visit(batch);
    if (batch >= curve.max_batch) break;
  }
}

// The number of sizes that fit beside a size: those up to it.
std::size_t sizes_beside(const DeviceClass& known, std::uint32_t size) {
  const auto end = std::upper_bound(known.sizes.begin(), known.sizes.end(),
                                    kWholeDevice.percent - known.sizes[size]);
  return static_cast<std::size_t>(end - known.sizes.begin());
}

}  // namespace

double LeastSlowdowns::effort(const PlanContext& context, std::uint32_t device_class) {
  const DeviceClass& known = context.classes()[device_class];
  if (known.interference == nullptr) return 0;
  std::vector<double> of_size(known.sizes.size(), 0);
  std::vector<double> up_to{0};  // [n]: of the n smallest sizes
  for (std::uint32_t size = 0; size < known.sizes.size(); ++size) {
    for (std::uint32_t model = 0; model < context.models().size(); ++model)
      for_batches(context, device_class, model, size, [&](std::uint32_t) { ++of_size[size]; });
    up_to.push_back(up_to.back() + of_size[size]);
  }
  double pairs = 0;
  for (std::uint32_t size = 0; size < known.sizes.size(); ++size)
    pairs += of_size[size] * up_to[sizes_beside(known, size)];
  const double effort = pairs / most_pairs(known.interference->kind());
  return effort <= 1 ? effort : 0;
}

LeastSlowdowns::LeastSlowdowns(const PlanContext& context, std::uint32_t device_class)
    : context_(&context), device_class_(device_class) {
  if (effort(context, device_class) == 0) return;
  const DeviceClass& known = context.classes()[device_class];
  for (std::uint32_t size = 0; size < known.sizes.size(); ++size) {
    const Share share{known.sizes[size]};
    for (std::uint32_t model = 0; model < context.models().size(); ++model) {
      for_batches(context, device_class, model, size, [&](std::uint32_t batch) {
        batches_.push_back(known.interference->traits(context.models()[model]->name, batch, share));
      });
    }
    ends_.push_back(batches_.size());
  }
}

std::span<const profile::BatchTraits> LeastSlowdowns::beside(std::uint32_t size) const {
  const std::size_t sizes = sizes_beside(context_->classes()[device_class_], size);
  return sizes == 0 ? std::span<const profile::BatchTraits>{}
                    : std::span(batches_).first(ends_[sizes - 1]);
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
