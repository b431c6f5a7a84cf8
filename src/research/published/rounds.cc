#include "research/published/rounds.h"

#include <algorithm>
#include <utility>

#include "schedule/plan_output.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

// At least `required`, but for rounding.
bool reaches(double value, double required) { return value >= required * (1 - kRoundingSlack); }

}  // namespace

RoundTimes::RoundTimes(const PlanContext& context) : context_(&context) {
  for (const ModelDemand* demand : context.models())
    most_batch_ = std::max(most_batch_, demand->max_batch);
  for (const DeviceClass& known : context.classes())
    most_sizes_ = std::max(most_sizes_, known.sizes.size());
}

std::uint32_t RoundTimes::max_batch(std::size_t model, const RoundPlace& place) const {
  return context_->curve(model, place.device_class, place.size).max_batch;
}

double RoundTimes::alone_ms(std::size_t model, std::uint32_t batch, const RoundPlace& place) const {
  return context_->curve(model, place.device_class, place.size).latency_ms[batch - 1];
}

const profile::BatchTraits& RoundTimes::traits(std::size_t model, std::uint32_t batch,
                                               std::uint32_t device_class, std::uint32_t size) {
  if (traits_.empty()) {
    traits_.resize(context_->classes().size() * most_sizes_ * context_->models().size() *
                   most_batch_);
  }
  const std::size_t place = (device_class * most_sizes_ + size) * context_->models().size() + model;
  std::optional<profile::BatchTraits>& known = traits_[place * most_batch_ + (batch - 1)];
  if (!known) {
    const DeviceClass& of = context_->classes()[device_class];
    known = of.interference->traits(context_->models()[model]->name, batch, Share{of.sizes[size]});
  }
  return *known;
}

double RoundTimes::slowdown(std::size_t model, std::uint32_t batch, const RoundPlace& place) {
  if (place.beside == nullptr || !context_->interferes(place.device_class)) return 1;
  const profile::InterferenceModel& interference =
      *context_->classes()[place.device_class].interference;
  double worst = 1;
  for (const RoundSlot& slot : place.beside->slots) {
    worst = std::max(worst,
                     interference.slowdown(
                         traits(model, batch, place.device_class, place.size),
                         traits(slot.model, slot.batch, place.device_class, place.beside->size)));
  }
  return worst;
}

std::uint32_t RoundTimes::saturating_batch(std::size_t model, const RoundPlace& place) {
  std::uint32_t batch = max_batch(model, place);
  while (batch > 0 &&
         !reaches(context_->models()[model]->slo_ms, 2 * latency_ms(model, batch, place)))
    --batch;
  return batch;
}

std::optional<OwnRounds> RoundTimes::own_rounds(std::size_t model, double rate,
                                                const RoundPlace& place) {
  const std::uint32_t largest = saturating_batch(model, place);
  if (largest == 0) return std::nullopt;
  const double shortest_ms = latency_ms(model, largest, place);
  const double most = 1000.0 * largest / shortest_ms;
  const OwnRounds saturated{largest, shortest_ms, std::min(rate, most), true};
  if (reaches(rate, most)) return saturated;
  const double slo_ms = context_->models()[model]->slo_ms;
  for (std::uint32_t batch = largest; batch > 0; --batch) {
    const double fills_ms = 1000.0 * batch / rate;
    const double runs_ms = latency_ms(model, batch, place);
    if (reaches(fills_ms, runs_ms) && reaches(slo_ms, fills_ms + runs_ms))
      return OwnRounds{batch, fills_ms, rate, false};
  }
  // No batch fills in time: the smallest that holds what arrives in the longest duty cycle.
  for (std::uint32_t batch = 1; batch <= largest; ++batch) {
    const double runs_ms = latency_ms(model, batch, place);
    const double duty_cycle_ms = std::min(slo_ms - runs_ms, 1000.0 * batch / rate);
    if (reaches(duty_cycle_ms, runs_ms) && rate * duty_cycle_ms <= 1000.0 * batch)
      return OwnRounds{batch, duty_cycle_ms, rate, false};
  }
  return saturated;
}

namespace {

std::uint32_t largest_size(const DeviceClass& known) {
  return static_cast<std::uint32_t>(known.sizes.size() - 1);
}

std::vector<RoundDevice> whole_round_devices(const PlanContext& context) {
  std::vector<RoundDevice> devices;
  const std::size_t count = std::min(context.device_budget(), context.devices().size());
  for (std::uint32_t device = 0; device < count; ++device) {
    const std::uint32_t device_class = context.class_of(device);
    devices.push_back(
        {device_class, {RoundGpulet{.size = largest_size(context.classes()[device_class])}}});
  }
  return devices;
}

// The largest listed size that fits beside one of that size.
std::optional<std::uint32_t> size_beside(const DeviceClass& known, std::uint32_t size) {
  const int rest = kWholeDevice.percent - known.sizes[size];
  const auto above = std::upper_bound(known.sizes.begin(), known.sizes.end(), rest);
  if (above == known.sizes.begin()) return std::nullopt;
  return static_cast<std::uint32_t>(above - known.sizes.begin() - 1);
}

}  // namespace

RoundDevices::RoundDevices(const PlanContext& context)
    : RoundDevices(context, whole_round_devices(context)) {}

RoundDevices::RoundDevices(const PlanContext& context, std::vector<RoundDevice> devices)
    : context_(&context), devices_(std::move(devices)) {}

std::vector<GpuletIndex> RoundDevices::all() const {
  std::vector<GpuletIndex> indices;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (std::size_t gpulet = 0; gpulet < devices_[device].gpulets.size(); ++gpulet)
      indices.push_back({device, gpulet});
  }
  return indices;
}

std::vector<GpuletIndex> RoundDevices::free_gpulets() const {
  std::vector<GpuletIndex> indices = all();
  std::erase_if(indices, [this](const GpuletIndex& index) { return !at(index).is_free(); });
  return indices;
}

const RoundGpulet* RoundDevices::neighbour(const GpuletIndex& index) const {
  const std::vector<RoundGpulet>& gpulets = devices_[index.device].gpulets;
  return gpulets.size() < 2 ? nullptr : &gpulets[1 - index.gpulet];
}

void RoundDevices::occupy(const GpuletIndex& index, std::size_t model, const OwnRounds& rounds,
                          RoundTimes& times) {
  RoundGpulet& taken = at(index);
  taken.duty_cycle_ms = rounds.duty_cycle_ms;
  taken.saturated = rounds.saturated;
  taken.slots = {{static_cast<std::uint32_t>(model), rounds.batch, rounds.rate,
                  times.slowdown(model, rounds.batch, place(index))}};
}

void RoundDevices::release(const GpuletIndex& index) {
  at(index) = RoundGpulet{.size = at(index).size};
}

bool RoundDevices::can_split(const GpuletIndex& index, std::uint32_t size) const {
  const DeviceClass& known = context_->classes()[class_of(index)];
  return devices_[index.device].gpulets.size() == 1 && size < at(index).size &&
         known.example->max_partitions >= 2 && size_beside(known, size).has_value();
}

void RoundDevices::split(const GpuletIndex& index, std::uint32_t size) {
  const std::uint32_t rest = *size_beside(context_->classes()[class_of(index)], size);
  at(index).size = size;
  devices_[index.device].gpulets.push_back(RoundGpulet{.size = rest});
}

void RoundDevices::join_free_devices() {
  for (RoundDevice& device : devices_) {
    if (device.gpulets.size() < 2) continue;
    const bool is_free = std::all_of(device.gpulets.begin(), device.gpulets.end(),
                                     [](const RoundGpulet& one) { return one.is_free(); });
    if (!is_free) continue;
    const std::uint32_t whole = largest_size(context_->classes()[device.device_class]);
    device.gpulets.assign(1, RoundGpulet{.size = whole});
  }
}

bool RoundDevices::memory_fits(std::size_t model, std::size_t device) const {
  const RoundDevice& place = devices_[device];
  const double device_mb = context_->classes()[place.device_class].example->memory_mb;
  if (device_mb == 0) return true;
  double needed_mb = context_->on_class(model, place.device_class).memory_mb;
  for (const RoundGpulet& gpulet : place.gpulets) {
    for (const RoundSlot& slot : gpulet.slots)
      needed_mb += context_->on_class(slot.model, place.device_class).memory_mb;
  }
  return needed_mb <= device_mb;
}

PlannedGpulet RoundDevices::planned(std::size_t device, const RoundGpulet& gpulet) const {
  const std::uint32_t device_class = devices_[device].device_class;
  PlannedGpulet made;
  made.device = context_->devices()[device]->key;
  made.size = Share{context_->classes()[device_class].sizes[gpulet.size]};
  made.duty_cycle_ms = gpulet.duty_cycle_ms;
  for (const RoundSlot& slot : gpulet.slots) {
    LatencyCurve curve = context_->curve(slot.model, device_class, gpulet.size);
    const std::vector<double> slowdowns(slot.batch, slot.slowdown);
    curve.slowdown = slowdowns.data();
    const double slo_ms = context_->models()[slot.model]->slo_ms;
    made.assignments.push_back(assignment_of(*context_, device_class, gpulet.size,
                                             {&curve, slot.rate, slo_ms, slot.model}, slot.batch));
  }
  std::sort(made.assignments.begin(), made.assignments.end(),
            [](const Assignment& a, const Assignment& b) { return a.model < b.model; });
  return made;
}

Plan RoundDevices::plan(const std::vector<double>& unplaced) const {
  Plan plan;
  for (const GpuletIndex& index : all()) {
    if (!at(index).is_free()) plan.gpulets.push_back(planned(index.device, at(index)));
  }
  std::stable_sort(plan.gpulets.begin(), plan.gpulets.end(), in_plan_order);
  list_unserved(
      *context_, unplaced,
      [&](std::size_t model, double rate) {
        return explain_unserved(*context_, model, rate, plan.devices_used());
      },
      &plan);
  return plan;
}

}  // namespace gpulet::research
