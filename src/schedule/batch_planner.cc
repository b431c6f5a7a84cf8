#include "schedule/batch_planner.h"

#include <algorithm>
#include <limits>

namespace gpulet::schedule {

namespace {

constexpr double kSloSlack = 1 + kRoundingSlack;

double latency_of(const DeviceBatches::ModelSlot& slot, std::uint32_t batch) {
  return slot.planned.curve->latency_ms[batch - 1];
}

}  // namespace

double task_latency_ms(const QueuedTask& task) {
  if (task.queued >= task.batch) {
    const std::uint32_t batches = (task.queued + task.batch - 1) / task.batch;
    return task.remaining_ms + batches * task.execution_ms;
  }
  const double until_full_ms = task.rate > 0 ? 1000.0 * (task.batch - task.queued) / task.rate
                                             : std::numeric_limits<double>::infinity();
  return std::max(task.remaining_ms, until_full_ms) + task.execution_ms;
}

DeviceBatches::DeviceBatches(PlanContext& context, std::span<const PlacedGpulet> gpulets)
    : interferes_(gpulets.size() > 1 && context.interferes(gpulets.front().device_class)) {
  std::size_t models = 0;
  for (const PlacedGpulet& gpulet : gpulets) models += gpulet.models.size();
  slots_.reserve(models);
  first_slot_.reserve(gpulets.size() + 1);
  for (std::uint32_t index = 0; index < gpulets.size(); ++index) {
    first_slot_.push_back(slots_.size());
    const PlacedGpulet& gpulet = gpulets[index];
    for (const PlacedModel& placed : gpulet.models) {
      ModelSlot& slot = slots_.emplace_back();
      slot.gpulet = index;
      slot.requested = placed.requested;
      slot.place = {gpulet.device_class, placed.model, gpulet.size};
      slot.alone = &context.curve(placed.model, gpulet.device_class, gpulet.size);
      slot.planned = {slot.alone, 0, context.models()[placed.model]->slo_ms, placed.model};
    }
  }
  first_slot_.push_back(slots_.size());
  if (interferes_) look_up_slowdowns(context.slowdowns());
}

void DeviceBatches::look_up_slowdowns(SlowdownTables& tables) {
  slowdowns_.resize(slots_.size() * slots_.size());
  for (ModelSlot& slot : slots_) {
    if (slot.alone->max_batch > 0) slot.breakpoints = tables.breakpoints(slot.place);
  }
  for (std::size_t own = 0; own < slots_.size(); ++own) {
    for (std::size_t other = 0; other < slots_.size(); ++other) {
      if (slots_[own].gpulet == slots_[other].gpulet) continue;
      if (slots_[own].breakpoints.empty() || slots_[other].breakpoints.empty()) continue;
      slowdowns_[own * slots_.size() + other] =
          &tables.between(slots_[own].place, slots_[other].place);
    }
  }
}

std::span<DeviceBatches::ModelSlot> DeviceBatches::slots_of(std::size_t gpulet) {
  return std::span(slots_).subspan(first_slot_[gpulet],
                                   first_slot_[gpulet + 1] - first_slot_[gpulet]);
}

std::span<const DeviceBatches::ModelSlot> DeviceBatches::slots_of(std::size_t gpulet) const {
  return std::span(slots_).subspan(first_slot_[gpulet],
                                   first_slot_[gpulet + 1] - first_slot_[gpulet]);
}

double DeviceBatches::round_ms(std::size_t gpulet) const {
  double sum_ms = 0;
  for (const ModelSlot& slot : slots_of(gpulet)) {
    if (slot.planned.rate > 0) sum_ms += latency_of(slot, slot.batch);
  }
  return sum_ms;
}

void DeviceBatches::plan_min_batches() {
  for (ModelSlot& slot : slots_) slot.planned.rate = slot.alone->max_batch > 0 ? slot.requested : 0;
  const auto served = [this] {
    return std::count_if(slots_.begin(), slots_.end(),
                         [](const ModelSlot& slot) { return slot.planned.rate > 0; });
  };
  while (true) {
    const auto before = served();
    for (ModelSlot& slot : slots_) {
      slot.assumed = 0;
      if (slot.planned.rate > 0) slot.planned.rate = slot.requested;
    }
    bool raised = true;
    while (raised && served() == before) {
      raised = false;
      for (std::size_t gpulet = 0; gpulet + 1 < first_slot_.size(); ++gpulet) {
        if (interferes_) refresh(gpulet);
        raised = raise_batches(gpulet) || raised;
      }
    }
    // The others can serve more without the models that are no longer served.
    if (served() == before) return;
  }
}

void DeviceBatches::refresh(std::size_t gpulet) {
  for (ModelSlot& slot : slots_of(gpulet)) {
    if (slot.planned.rate > 0) refresh(slot);
  }
}

void DeviceBatches::refresh(ModelSlot& slot) {
  const std::size_t own = static_cast<std::size_t>(&slot - slots_.data());
  at_breakpoints_.assign(slot.breakpoints.size(), 1);
  for (std::size_t gpulet = 0; gpulet + 1 < first_slot_.size(); ++gpulet) {
    if (gpulet == slot.gpulet) continue;
    for (std::size_t breakpoint = 0; breakpoint < at_breakpoints_.size(); ++breakpoint) {
      double worst = 1;
      for (std::size_t other = first_slot_[gpulet]; other < first_slot_[gpulet + 1]; ++other) {
        if (slots_[other].planned.rate <= 0) continue;
        worst = std::max(
            worst, slowdowns_[own * slots_.size() + other]->at(breakpoint, slots_[other].assumed));
      }
      at_breakpoints_[breakpoint] = profile::add_neighbour(at_breakpoints_[breakpoint], worst);
    }
  }
  std::size_t at = 0;  // the first breakpoint that is not below the batch
  const auto slowdown_of = [&](std::uint32_t batch) {
    while (at + 1 < slot.breakpoints.size() && slot.breakpoints[at] < batch) ++at;
    if (at == 0 || batch >= slot.breakpoints[at]) return at_breakpoints_[at];
    const double part = static_cast<double>(batch - slot.breakpoints[at - 1]) /
                        (slot.breakpoints[at] - slot.breakpoints[at - 1]);
    return at_breakpoints_[at - 1] + part * (at_breakpoints_[at] - at_breakpoints_[at - 1]);
  };
  slow_down(*slot.alone, slot.planned.slo_ms, slowdown_of, &slot.slowed);
  slot.planned.curve = &slot.slowed.curve;
}

void DeviceBatches::refresh_others(std::size_t gpulet) {
  for (std::size_t other = 0; other + 1 < first_slot_.size(); ++other) {
    if (other != gpulet) refresh(other);
  }
}

bool DeviceBatches::raise_batches(std::size_t gpulet) {
  const Round round = fit_rates(gpulet);
  bool raised = false;
  std::size_t at = 0;
  for (ModelSlot& slot : slots_of(gpulet)) {
    if (slot.planned.rate <= 0) continue;
    slot.batch = round.batches[at++];
    while (slot.assumed + 1 < slot.breakpoints.size() &&
           slot.breakpoints[slot.assumed] < slot.batch) {
      ++slot.assumed;
      raised = true;
    }
  }
  return raised;
}

Round DeviceBatches::fit_rates(std::size_t gpulet) {
  scratch_.clear();
  for (const ModelSlot& slot : slots_of(gpulet)) {
    if (slot.planned.rate > 0) scratch_.push_back(slot.planned);
  }
  if (std::optional<Round> round = shortest_round(scratch_)) return *std::move(round);
  scratch_.clear();
  Round fitted;
  for (ModelSlot& slot : slots_of(gpulet)) {
    if (slot.planned.rate <= 0) continue;
    slot.planned.rate =
        max_rate_beside(scratch_, *slot.planned.curve, slot.planned.slo_ms, 0, slot.planned.rate);
    if (slot.planned.rate <= kRoundingSlack * slot.requested) {
      slot.planned.rate = 0;
      continue;
    }
    scratch_.push_back(slot.planned);
    if (std::optional<Round> round = shortest_round(scratch_)) {
      fitted = *std::move(round);
    } else {
      scratch_.pop_back();
      slot.planned.rate = 0;
    }
  }
  return fitted;
}

bool DeviceBatches::keeps_up(const ModelSlot& slot, std::uint32_t batch, double round_ms) const {
  std::vector<BatchSlot> served;
  std::size_t at = 0;
  for (const ModelSlot& other : slots_of(slot.gpulet)) {
    if (&other == &slot) at = served.size();
    if (other.planned.rate > 0) served.push_back(other.planned);
  }
  return batch_holds(served, at, batch, round_ms);
}

bool DeviceBatches::holds(std::size_t gpulet) const {
  const std::span<const ModelSlot> slots = slots_of(gpulet);
  for (const ModelSlot& slot : slots) {
    if (slot.planned.rate > 0 && slot.batch > slot.planned.curve->max_batch) return false;
  }
  const double duty_cycle_ms = round_ms(gpulet);
  return std::all_of(slots.begin(), slots.end(), [&](const ModelSlot& slot) {
    return slot.planned.rate <= 0 ||
           (duty_cycle_ms + latency_of(slot, slot.batch) <= slot.planned.slo_ms * kSloSlack &&
            keeps_up(slot, slot.batch, duty_cycle_ms));
  });
}

void DeviceBatches::grow_batches() {
  bool grown = true;
  for (int pass = 0; grown && pass < kMaxPasses; ++pass) {
    grown = false;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].planned.rate > 0) grown = grow_batch(slot) || grown;
    }
  }
}

bool DeviceBatches::grow_batch(std::size_t slot) {
  ModelSlot& grown = slots_[slot];
  std::uint32_t largest = largest_within(grown, grown.planned.curve->max_batch);
  // The neighbours may tolerate it up to a lower breakpoint only.
  std::size_t breakpoint = grown.assumed;
  while (breakpoint + 1 < grown.breakpoints.size() && grown.breakpoints[breakpoint] < largest)
    ++breakpoint;
  while (breakpoint > grown.assumed && !neighbours_tolerate(slot, breakpoint)) {
    --breakpoint;
    largest = largest_within(grown, grown.breakpoints[breakpoint]);
    while (breakpoint > grown.assumed && grown.breakpoints[breakpoint - 1] >= largest) --breakpoint;
  }
  if (largest <= grown.batch) return false;
  grown.batch = largest;
  return true;
}

// The largest batch up to max_batch with which the gpulet itself holds; 0 where none does.
std::uint32_t DeviceBatches::largest_within(const ModelSlot& slot, std::uint32_t max_batch) const {
  const std::span<const ModelSlot> slots = slots_of(slot.gpulet);
  const double rest_ms = round_ms(slot.gpulet) - latency_of(slot, slot.batch);
  const auto fits = [&](std::uint32_t batch) {
    const double own_ms = latency_of(slot, batch);
    const double duty_cycle_ms = rest_ms + own_ms;
    const QueuedTask first{1, batch, slot.planned.rate, duty_cycle_ms, own_ms};
    if (task_latency_ms(first) > slot.planned.slo_ms * kSloSlack) return false;
    return std::all_of(slots.begin(), slots.end(), [&](const ModelSlot& other) {
      return &other == &slot || other.planned.rate <= 0 ||
             (duty_cycle_ms + latency_of(other, other.batch) <= other.planned.slo_ms * kSloSlack &&
              keeps_up(other, other.batch, duty_cycle_ms));
    });
  };
  return search_batch(max_batch, fits,
                      [&](std::uint32_t batch) {
                        return keeps_up(slot, batch, rest_ms + latency_of(slot, batch));
                      })
      .value_or(0);
}

// Keeps the assumption where the neighbours tolerate it.
bool DeviceBatches::neighbours_tolerate(std::size_t slot, std::size_t breakpoint) {
  ModelSlot& changed = slots_[slot];
  const std::size_t before = changed.assumed;
  changed.assumed = breakpoint;
  refresh_others(changed.gpulet);
  bool tolerated = true;
  for (std::size_t other = 0; tolerated && other + 1 < first_slot_.size(); ++other) {
    tolerated = other == changed.gpulet || holds(other);
  }
  if (tolerated) return true;
  changed.assumed = before;
  refresh_others(changed.gpulet);
  return false;
}

namespace {

// Whether no slot but `except` has a lower rate than before.
bool no_rate_falls(const std::vector<DeviceBatches::ModelSlot>& slots,
                   const std::vector<double>& before, std::size_t except) {
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slot != except && slots[slot].planned.rate < before[slot] * (1 - kRoundingSlack))
      return false;
  }
  return true;
}

}  // namespace

const char* DeviceUsage::reserve(const PlacedGpulet& gpulet) {
  const Device& device = *context_->devices()[gpulet.device];
  const DeviceClass& device_class = context_->classes()[gpulet.device_class];
  const auto found = used_.find(gpulet.device);
  if (found == used_.end() && used_.size() >= context_->device_budget())
    return "is one more than may be used (max_devices)";
  Used used = found == used_.end() ? Used{} : found->second;
  used.partitions += 1;
  used.percent += device_class.sizes[gpulet.size];
  for (const PlacedModel& placed : gpulet.models)
    used.memory_mb += context_->on_class(placed.model, gpulet.device_class).memory_mb;
  if (used.partitions > device.max_partitions) return "has no partition left";
  if (used.percent > kWholeDevice.percent) return "has too little share left";
  if (device.memory_mb > 0 && used.memory_mb > device.memory_mb)
    return "has too little memory left";
  used_[gpulet.device] = used;
  return nullptr;
}

void sort_gpulets(const PlanContext& context, std::vector<PlacedGpulet>* gpulets) {
  const auto size_of = [&](const PlacedGpulet& gpulet) {
    return context.classes()[gpulet.device_class].sizes[gpulet.size];
  };
  const auto by_model = [](const PlacedModel& a, const PlacedModel& b) {
    return a.model < b.model;
  };
  std::stable_sort(
      gpulets->begin(), gpulets->end(), [&](const PlacedGpulet& a, const PlacedGpulet& b) {
        if (a.device != b.device) return a.device < b.device;
        if (size_of(a) != size_of(b)) return size_of(a) > size_of(b);
        return std::lexicographical_compare(a.models.begin(), a.models.end(), b.models.begin(),
                                            b.models.end(), by_model);
      });
}

BatchPlanner::BatchPlanner(PlanContext& context, std::vector<PlacedGpulet> gpulets)
    : context_(&context), gpulets_(std::move(gpulets)) {
  sort_gpulets(context, &gpulets_);
  for (std::size_t first = 0; first < gpulets_.size();) {
    std::size_t end = first + 1;
    while (end < gpulets_.size() && gpulets_[end].device == gpulets_[first].device) ++end;
    first_gpulet_.push_back(first);
    devices_.emplace_back(context, std::span(gpulets_).subspan(first, end - first));
    first = end;
  }
  first_gpulet_.push_back(gpulets_.size());
}

void BatchPlanner::plan_min_batches() {
  for (DeviceBatches& device : devices_) device.plan_min_batches();
}

void BatchPlanner::grow_batches() {
  for (DeviceBatches& device : devices_) device.grow_batches();
}

void BatchPlanner::redistribute() {
  std::vector<std::vector<SlotPosition>> slots_of(context_->models().size());
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    const std::vector<DeviceBatches::ModelSlot>& slots = devices_[device].slots();
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      slots_of[slots[slot].planned.model].push_back({device, slot});
  }
  for (std::size_t model = 0; model < slots_of.size(); ++model) {
    if (slots_of[model].size() < 2) continue;
    // Where another model's rate was not raised, this one may be served more than before.
    double unserved = unplaced()[model];
    for (const SlotPosition& at : slots_of[model]) {
      if (unserved <= 0) break;
      unserved -= raise_rate(at, unserved);
    }
  }
  // Requests the rates that are served now, so that no rate depends on the order in which they were
  // raised.
  for (DeviceBatches& device : devices_) {
    for (std::size_t slot = 0; slot < device.slots().size(); ++slot)
      device.request(slot, device.slots()[slot].planned.rate);
    device.plan_min_batches();
  }
}

double BatchPlanner::raise_rate(const SlotPosition& at, double unserved) {
  DeviceBatches& device = devices_[at.device];
  std::vector<double> before;
  before.reserve(device.slots().size());
  for (const DeviceBatches::ModelSlot& slot : device.slots()) before.push_back(slot.planned.rate);
  device.request(at.slot, before[at.slot] + unserved);
  device.plan_min_batches();
  const double gained = device.slots()[at.slot].planned.rate - before[at.slot];
  if (gained > 0 && no_rate_falls(device.slots(), before, at.slot)) return gained;
  device.request(at.slot, before[at.slot]);
  device.plan_min_batches();
  return 0;
}

std::vector<double> BatchPlanner::unplaced() const {
  std::vector<double> unplaced;
  unplaced.reserve(context_->models().size());
  for (const ModelDemand* demand : context_->models()) unplaced.push_back(demand->rate);
  for (const DeviceBatches& device : devices_) {
    for (const DeviceBatches::ModelSlot& slot : device.slots())
      unplaced[slot.planned.model] -= slot.planned.rate;
  }
  for (std::size_t model = 0; model < unplaced.size(); ++model) {
    if (unplaced[model] <= kRoundingSlack * context_->models()[model]->rate) unplaced[model] = 0;
  }
  return unplaced;
}

std::vector<PlannedGpulet> BatchPlanner::planned() const {
  std::vector<PlannedGpulet> planned;
  planned.reserve(gpulets_.size());
  const PlacedGpulet* last = nullptr;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (const DeviceBatches::ModelSlot& slot : devices_[device].slots()) {
      if (slot.planned.rate <= 0) continue;
      const PlacedGpulet& placed = gpulets_[first_gpulet_[device] + slot.gpulet];
      if (&placed != last) {
        PlannedGpulet& added = planned.emplace_back();
        added.device = context_->devices()[placed.device]->key;
        added.size = Share{context_->classes()[placed.device_class].sizes[placed.size]};
        added.duty_cycle_ms = devices_[device].round_ms(slot.gpulet);
        last = &placed;
      }
      planned.back().assignments.push_back(
          assignment_of(*context_, placed.device_class, placed.size, slot.planned, slot.batch));
    }
  }
  keep_unchanged_gpulets(context_->input(), planned);
  return planned;
}

}  // namespace gpulet::schedule
