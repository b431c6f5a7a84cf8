#include "schedule/plan_builder.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gpulet::schedule {
namespace {

double load_of(const BatchSlot& slot) { return slot.rate * slot.curve->min_request_ms / 1000; }

std::vector<BatchSlot>::iterator place_of(std::vector<BatchSlot>& slots, std::size_t model) {
  return std::lower_bound(
      slots.begin(), slots.end(), model,
      [](const BatchSlot& slot, std::size_t wanted) { return slot.model < wanted; });
}

// Adds the rate to the model's slot, or inserts one: a model never has two slots in a round. Slots
// stay sorted, so that a round adds up to the same sum, bit by bit, in whatever order it was built.
void join(std::vector<BatchSlot>* slots, const BatchSlot& newcomer) {
  const auto place = place_of(*slots, newcomer.model);
  if (place != slots->end() && place->model == newcomer.model) {
    place->rate += newcomer.rate;
  } else {
    slots->insert(place, newcomer);
  }
}

Neighbour as_neighbour(const BuilderGpulet& gpulet) {
  Neighbour neighbour{gpulet.size, {}};
  neighbour.models.reserve(gpulet.slots.size());
  for (const BatchSlot& slot : gpulet.slots) neighbour.models.push_back(slot.model);
  return neighbour;
}

}  // namespace

double most_of(PlanBuilder& builder, std::size_t gpulet, std::size_t model, double rate,
               double least) {
  return builder.fits(gpulet, model, rate) ? rate : builder.max_rate(gpulet, model, least, rate);
}

std::optional<SpareCapacity> largest_spare_capacity(PlanBuilder& builder, std::size_t model) {
  // Crumbs of a rest cost as much to find as the whole of it.
  constexpr double kUsefulPart = 1e-3;
  const double useful = std::max(kRoundingSlack * builder.context().models()[model]->rate,
                                 kUsefulPart * builder.unplaced(model));
  std::optional<SpareCapacity> most;
  for (std::size_t index = 0; index < builder.gpulets().size(); ++index) {
    const BuilderGpulet& gpulet = builder.gpulets()[index];
    if (gpulet.slots.empty()) continue;
    const double enough = most ? most->rate : useful;
    // No round needs less than min_request_ms per request.
    const double request_ms = builder.curve(model, gpulet).min_request_ms;
    if ((kFullLoad - gpulet.load) * 1000 <= enough * request_ms) continue;
    const double rate = builder.max_rate(index, model, enough);
    if (rate > enough) most = {index, rate};
  }
  return most;
}

bool add_spare(PlanBuilder& builder, std::size_t model, const std::optional<SpareCapacity>& spare) {
  if (!spare) return false;
  const double wanted = builder.unplaced(model);
  const double rate =
      spare->rate <= wanted ? spare->rate : most_of(builder, spare->gpulet, model, wanted);
  if (rate > 0) builder.add(spare->gpulet, model, rate);
  return rate > 0;
}

double load_of(const std::vector<BatchSlot>& slots) {
  double load = 0;
  for (const BatchSlot& slot : slots) load += load_of(slot);
  return load;
}

std::optional<std::uint32_t> size_taken(const DeviceClass& device_class, int free_percent,
                                        std::uint32_t partitions, std::uint32_t wanted) {
  const std::vector<int>& sizes = device_class.sizes;
  const std::uint32_t most = device_class.example->max_partitions;
  if (partitions >= most || sizes[wanted] > free_percent) return std::nullopt;
  const bool rest_is_useful =
      partitions + 1 < most && free_percent - sizes[wanted] >= sizes.front();
  if (rest_is_useful) return wanted;
  std::uint32_t size = wanted;
  while (size + 1 < sizes.size() && sizes[size + 1] <= free_percent) ++size;
  return size;
}

PlanBuilder::PlanBuilder(PlanContext& context) : context_(&context) {
  for (const DeviceClass& device_class : context.classes()) {
    unopened_.push_back(device_class.devices.size());
  }
  for (const ModelDemand* demand : context.models()) unplaced_.push_back(demand->rate);
  gpulets_.reserve(std::min(context.models().size(), context.devices().size()) * 2);
  devices_.reserve(std::min(context.models().size(), context.devices().size()));
}

BatchSlot PlanBuilder::slot(std::size_t model, const LatencyCurve& curve, double rate) const {
  return {&curve, rate, context_->models()[model]->slo_ms, static_cast<std::uint32_t>(model)};
}

std::uint32_t PlanBuilder::open(std::size_t device_class) {
  --unopened_[device_class];
  ++used_;
  BuilderDevice device;
  device.device_class = static_cast<std::uint32_t>(device_class);
  devices_.push_back(device);
  return static_cast<std::uint32_t>(devices_.size() - 1);
}

bool PlanBuilder::memory_fits(std::size_t model, std::uint32_t device) const {
  const double limit_mb = class_of(device).example->memory_mb;
  return limit_mb == 0 || devices_[device].memory_mb + memory_of(model, device) <= limit_mb;
}

bool PlanBuilder::memory_fits_empty(std::size_t model, std::size_t device_class) const {
  const double limit_mb = context_->classes()[device_class].example->memory_mb;
  return limit_mb == 0 || context_->on_class(model, device_class).memory_mb <= limit_mb;
}

bool PlanBuilder::memory_fits(std::size_t model, const BuilderGpulet& gpulet) const {
  if (!memory_fits(model, gpulet.device)) return false;
  const double limit_mb = class_of(gpulet.device).gpulet_mb[gpulet.size];
  if (limit_mb == std::numeric_limits<double>::infinity()) return true;
  double memory_mb = memory_of(model, gpulet.device);
  for (const BatchSlot& slot : gpulet.slots) memory_mb += memory_of(slot.model, gpulet.device);
  return memory_mb <= limit_mb;
}

const LatencyCurve& PlanBuilder::own_curve(std::size_t model, std::uint32_t device,
                                           std::uint32_t size, double rate,
                                           double loaded_mb) const {
  const BuilderDevice& host = devices_[device];
  const double limit_mb = class_of(device).example->memory_mb;
  const double free_mb = limit_mb > 0 ? limit_mb - host.memory_mb + loaded_mb
                                      : std::numeric_limits<double>::infinity();
  return context_->own_curve(model, host.device_class, size, rate, free_mb);
}

const LatencyCurve& PlanBuilder::own_curve(const BuilderGpulet& gpulet, double rate) const {
  const BatchSlot& slot = gpulet.slots.front();
  return own_curve(slot.model, gpulet.device, gpulet.size, rate,
                   memory_of(slot.model, gpulet.device, *slot.curve));
}

double PlanBuilder::max_rate_of_new(std::uint32_t device, std::uint32_t size, std::size_t model) {
  const BuilderDevice& host = devices_[device];
  const DeviceClass& device_class = class_of(device);
  if (host.partitions >= device_class.example->max_partitions ||
      device_class.sizes[size] > host.free_percent || !memory_fits(model, device)) {
    return 0;
  }
  if (!context_->interferes(host.device_class)) {
    return own_curve(model, device, size, std::numeric_limits<double>::infinity()).max_rate;
  }
  std::vector<Occupant> together = occupants(device);
  const std::vector<Neighbour> beside = others_of(together, together.size());
  const double most = context_->curve_beside(model, host.device_class, size, beside).max_rate;
  if (most <= 0) return 0;
  together.push_back({std::nullopt, {size, {static_cast<std::uint32_t>(model)}}});
  return neighbours_hold(host.device_class, together, together.size() - 1) ? most : 0;
}

std::size_t PlanBuilder::add_gpulet(std::uint32_t device, std::uint32_t size, std::size_t model,
                                    double rate) {
  BuilderDevice& host = devices_[device];
  const std::size_t index = gpulets_.size();
  BuilderGpulet& gpulet = gpulets_.emplace_back();
  gpulet.device = device;
  gpulet.size = size;
  gpulet.next = host.first;
  host.first = static_cast<std::uint32_t>(index);
  const LatencyCurve& chosen = class_of(device).chooses_processes
                                   ? own_curve(model, device, size, rate)
                                   : curve(model, gpulet);
  gpulet.slots.push_back(slot(model, chosen, rate));
  refresh(device);
  gpulet.load = load_of(gpulet.slots);
  host.free_percent -= percent(gpulet);
  ++host.partitions;
  host.memory_mb += memory_of(model, device, chosen);
  update_divisible(device);
  mark_placed(model, rate);
  return index;
}

void PlanBuilder::mark_placed(std::size_t model, double rate) {
  unplaced_[model] -= rate;
  if (unplaced_[model] <= kRoundingSlack * context_->models()[model]->rate) unplaced_[model] = 0;
}

double PlanBuilder::unplaced_fraction() const {
  double sum = 0;
  for (std::size_t model = 0; model < unplaced_.size(); ++model) {
    sum += unplaced_[model] / context_->models()[model]->rate;
  }
  return sum;
}

bool PlanBuilder::may_join(const std::vector<BatchSlot>& slots, std::size_t model) const {
  const auto alone = [this](std::size_t one) { return context_->models()[one]->alone; };
  return std::all_of(slots.begin(), slots.end(), [&](const BatchSlot& slot) {
    return slot.model == model || (!alone(slot.model) && !alone(model) && !slot.curve->exclusive);
  });
}

KnownRound* PlanBuilder::known_of(BuilderGpulet& gpulet) {
  if (gpulet.known) return &*gpulet.known;
  if (!KnownRound::pays(gpulet.slots, ++gpulet.tests)) return nullptr;
  return &gpulet.known.emplace(gpulet.slots);
}

bool PlanBuilder::fits(std::size_t gpulet, std::size_t model, double rate) {
  BuilderGpulet& host = gpulets_[gpulet];
  if (!may_join(host.slots, model)) return false;
  if (chooses_processes(host, model)) {
    const double together = host.slots.front().rate + rate;
    const BatchSlot only = slot(model, own_curve(host, together), together);
    return min_duty_cycle_ms({&only, 1}).has_value();
  }
  const LatencyCurve& own = curve(model, host);
  if (own.max_batch == 0 || host.load + rate * own.min_request_ms / 1000 > kFullLoad) return false;
  KnownRound* const known = known_of(host);
  auto place = place_of(host.slots, model);
  const auto at = static_cast<std::size_t>(place - host.slots.begin());
  if (place != host.slots.end() && place->model == model) {
    const double before = place->rate;
    place->rate += rate;
    const bool holds = known != nullptr
                           ? RoundProbe(host.slots, at, known, before).holds(place->rate)
                           : min_duty_cycle_ms(host.slots).has_value();
    place->rate = before;
    return holds;
  }
  if (!memory_fits(model, host)) return false;
  const auto tried = host.slots.insert(place, slot(model, own, rate));
  const bool holds = known != nullptr ? RoundProbe(host.slots, at, known).holds(rate)
                                      : min_duty_cycle_ms(host.slots).has_value();
  host.slots.erase(tried);
  return holds && neighbours_tolerate(gpulet, model, host.size);
}

double PlanBuilder::max_rate(std::size_t gpulet, std::size_t model, double least, double limit) {
  BuilderGpulet& host = gpulets_[gpulet];
  if (!may_join(host.slots, model)) return 0;
  if (chooses_processes(host, model)) {
    const double most = own_curve(host, std::numeric_limits<double>::infinity()).max_rate;
    return std::clamp(most - host.slots.front().rate, 0.0, limit);
  }
  const LatencyCurve& own = curve(model, host);
  if (own.max_batch == 0 || host.load >= 1) return 0;
  KnownRound* const known = known_of(host);
  scratch_ = host.slots;
  std::optional<double> present;
  auto place = place_of(scratch_, model);
  if (place != scratch_.end() && place->model == model) {
    present = place->rate;
  } else if (!memory_fits(model, host)) {
    return 0;
  }
  const double before = present.value_or(0);
  double most = 0;
  if (known != nullptr) {
    const auto at = static_cast<std::size_t>(place - scratch_.begin());
    if (!present) scratch_.insert(place, slot(model, own, 0));
    RoundProbe probe(scratch_, at, known, present);
    const double spare = (1 - host.load) * 1000 / own.min_request_ms;
    most = std::min({own.max_rate, before + spare, before + limit});
    most = highest_rate(probe, before + least, most) - before;
  } else {
    if (present) scratch_.erase(place);
    const double slo_ms = context_->models()[model]->slo_ms;
    most = max_rate_beside(scratch_, own, slo_ms, before + least, before + limit) - before;
  }
  most = std::min(most, limit);
  return most > 0 && fits(gpulet, model, most) ? most : 0;
}

void PlanBuilder::add(std::size_t gpulet, std::size_t model, double rate) {
  BuilderGpulet& host = gpulets_[gpulet];
  if (chooses_processes(host, model)) {
    BatchSlot& only = host.slots.front();
    const LatencyCurve& chosen = own_curve(host, only.rate + rate);
    devices_[host.device].memory_mb +=
        memory_of(model, host.device, chosen) - memory_of(model, host.device, *only.curve);
    only = slot(model, chosen, only.rate + rate);
    host.load = load_of(host.slots);
  } else {
    join(host, slot(model, curve(model, host), rate));
  }
  mark_placed(model, rate);
}

void PlanBuilder::join(BuilderGpulet& gpulet, const BatchSlot& newcomer) {
  const std::size_t before = gpulet.slots.size();
  const auto at =
      static_cast<std::size_t>(place_of(gpulet.slots, newcomer.model) - gpulet.slots.begin());
  schedule::join(&gpulet.slots, newcomer);
  gpulet.load = load_of(gpulet.slots);
  const bool is_new = gpulet.slots.size() > before;
  if (gpulet.known) {
    is_new ? gpulet.known->added(gpulet.slots, at)
           : gpulet.known->raised(gpulet.slots, at, gpulet.slots[at].rate - newcomer.rate);
  }
  if (is_new) {
    devices_[gpulet.device].memory_mb += memory_of(newcomer.model, gpulet.device);
    refresh(gpulet.device);
  }
}

bool PlanBuilder::absorbs(const Candidate& candidate, std::size_t model, std::size_t gpulet) {
  const BuilderGpulet& moving = gpulets_[gpulet];
  if (!may_join(moving.slots, model)) return false;
  std::vector<Neighbour> beside;
  std::vector<Occupant> together;
  if (candidate.device && context_->interferes(candidate.device_class)) {
    together = occupants(*candidate.device);
    std::erase_if(together, [&](const Occupant& occupant) { return occupant.gpulet == gpulet; });
    beside = others_of(together, together.size());
  }
  const auto curve_there = [&](std::size_t of) -> const LatencyCurve& {
    return context_->curve_beside(of, candidate.device_class, candidate.size, beside);
  };
  scratch_ = moving.slots;
  for (BatchSlot& moved : scratch_) moved.curve = &curve_there(moved.model);
  schedule::join(&scratch_, slot(model, curve_there(model), candidate.rate));
  if (load_of(scratch_) > kFullLoad || !memory_absorbs(candidate, gpulet)) return false;
  if (!min_duty_cycle_ms(scratch_)) return false;
  if (together.empty()) return true;
  Occupant newcomer{std::nullopt, {candidate.size, {}}};
  for (const BatchSlot& slot : scratch_) newcomer.neighbour.models.push_back(slot.model);
  together.push_back(std::move(newcomer));
  return neighbours_hold(static_cast<std::uint32_t>(candidate.device_class), together,
                         together.size() - 1);
}

// REQUIRES: scratch_ holds the slots of the new gpulet.
bool PlanBuilder::memory_absorbs(const Candidate& candidate, std::size_t gpulet) const {
  const double limit_mb = context_->classes()[candidate.device_class].example->memory_mb;
  if (limit_mb == 0) return true;
  double memory_mb = candidate.device ? devices_[*candidate.device].memory_mb : 0;
  for (const BatchSlot& slot : scratch_) {
    memory_mb += context_->on_class(slot.model, candidate.device_class).memory_mb;
  }
  if (candidate.device == gpulets_[gpulet].device) {
    // Models that move within the device are already loaded there.
    for (const BatchSlot& slot : gpulets_[gpulet].slots) {
      memory_mb -= context_->on_class(slot.model, candidate.device_class).memory_mb;
    }
  }
  return memory_mb <= limit_mb;
}

void PlanBuilder::absorb(std::size_t into, std::size_t from) {
  BuilderGpulet& source = gpulets_[from];
  BuilderDevice& device = devices_[source.device];
  for (const BatchSlot& moved : source.slots) {
    device.memory_mb -= memory_of(moved.model, source.device);
    join(gpulets_[into], slot(moved.model, curve(moved.model, gpulets_[into]), moved.rate));
  }
  source.slots.clear();
  source.known.reset();
  source.load = 0;
  std::optional<std::uint32_t>* at = &device.first;
  while (*at != static_cast<std::uint32_t>(from)) at = &gpulets_[**at].next;
  *at = source.next;
  refresh(source.device);
  device.free_percent += percent(source);
  if (--device.partitions == 0) {
    ++unopened_[device.device_class];
    --used_;
  }
  update_divisible(source.device);
}

void PlanBuilder::use_spare_share() {
  std::vector<std::pair<double, std::size_t>> tight;
  for (std::size_t index = 0; index < gpulets_.size(); ++index) {
    const BuilderGpulet& gpulet = gpulets_[index];
    const int spare = devices_[gpulet.device].free_percent;
    if (gpulet.slots.empty() || spare == 0 || class_of(gpulet.device).example->mig) continue;
    const std::optional<TolerantRound> cycle = burst_tolerant_round(gpulet.slots);
    if (cycle && cycle->deviations < kMaxDeviations) tight.emplace_back(cycle->deviations, index);
  }
  std::sort(tight.begin(), tight.end());
  for (const auto& [deviations, index] : tight) grow(index);
}

void PlanBuilder::grow(std::size_t gpulet) {
  BuilderGpulet& grown = gpulets_[gpulet];
  BuilderDevice& device = devices_[grown.device];
  const std::vector<int>& sizes = class_of(grown.device).sizes;
  const int most = percent(grown) + device.free_percent;
  std::optional<TolerantRound> best = burst_tolerant_round(grown.slots);
  const std::uint32_t before = grown.size;
  std::uint32_t best_size = before;
  for (std::uint32_t size = before + 1; size < sizes.size() && sizes[size] <= most; ++size) {
    grown.size = size;
    scratch_ = grown.slots;
    for (BatchSlot& slot : scratch_) slot.curve = &curve(slot.model, grown);
    grown.size = before;
    const std::optional<TolerantRound> cycle = burst_tolerant_round(scratch_);
    if (!cycle || cycle->deviations <= best->deviations) continue;
    if (!neighbours_tolerate(gpulet, std::nullopt, size)) continue;
    best = cycle;
    best_size = size;
  }
  device.free_percent = most - sizes[best_size];
  grown.size = best_size;
  for (BatchSlot& slot : grown.slots) slot.curve = &curve(slot.model, grown);
  grown.known.reset();
  grown.load = load_of(grown.slots);
  refresh(grown.device);
  update_divisible(grown.device);
}

const LatencyCurve& PlanBuilder::curve_beside(std::size_t model,
                                              const BuilderGpulet& gpulet) const {
  return context_->curve_beside(model, devices_[gpulet.device].device_class, gpulet.size,
                                neighbours_of(gpulet));
}

std::vector<Neighbour> PlanBuilder::neighbours_of(const BuilderGpulet& gpulet) const {
  std::vector<Neighbour> beside;
  for (std::optional<std::uint32_t> at = devices_[gpulet.device].first; at; at = gpulets_[*at].next)
    if (&gpulets_[*at] != &gpulet) beside.push_back(as_neighbour(gpulets_[*at]));
  return beside;
}

std::vector<PlanBuilder::Occupant> PlanBuilder::occupants(std::uint32_t device) const {
  std::vector<Occupant> together;
  for (std::optional<std::uint32_t> at = devices_[device].first; at; at = gpulets_[*at].next)
    together.push_back({*at, as_neighbour(gpulets_[*at])});
  return together;
}

std::vector<Neighbour> PlanBuilder::others_of(const std::vector<Occupant>& occupants,
                                              std::size_t at) {
  std::vector<Neighbour> others;
  for (std::size_t index = 0; index < occupants.size(); ++index) {
    if (index != at) others.push_back(occupants[index].neighbour);
  }
  return others;
}

bool PlanBuilder::neighbours_hold(std::uint32_t device_class,
                                  const std::vector<Occupant>& occupants, std::size_t changed) {
  std::vector<BatchSlot> slots;
  for (std::size_t index = 0; index < occupants.size(); ++index) {
    if (index == changed) continue;
    const std::vector<Neighbour> beside = others_of(occupants, index);
    slots = gpulets_[*occupants[index].gpulet].slots;
    bool changed_curve = false;
    for (BatchSlot& slot : slots) {
      const LatencyCurve& curve =
          context_->curve_beside(slot.model, device_class, occupants[index].neighbour.size, beside);
      changed_curve = changed_curve || slot.curve != &curve;
      slot.curve = &curve;
    }
    if (changed_curve && !min_duty_cycle_ms(slots)) return false;
  }
  return true;
}

bool PlanBuilder::neighbours_tolerate(std::size_t gpulet, std::optional<std::size_t> model,
                                      std::uint32_t size) {
  const std::uint32_t device = gpulets_[gpulet].device;
  const std::uint32_t device_class = devices_[device].device_class;
  if (!context_->interferes(device_class) || devices_[device].partitions < 2) return true;
  std::vector<Occupant> together = occupants(device);
  const auto changed =
      std::find_if(together.begin(), together.end(),
                   [&](const Occupant& occupant) { return occupant.gpulet == gpulet; });
  changed->neighbour.size = size;
  if (model) {
    std::vector<std::uint32_t>& models = changed->neighbour.models;
    const auto newcomer = static_cast<std::uint32_t>(*model);
    models.insert(std::lower_bound(models.begin(), models.end(), newcomer), newcomer);
  }
  return neighbours_hold(device_class, together,
                         static_cast<std::size_t>(changed - together.begin()));
}

void PlanBuilder::refresh(std::uint32_t device) {
  if (!context_->interferes(devices_[device].device_class)) return;
  for (std::optional<std::uint32_t> at = devices_[device].first; at; at = gpulets_[*at].next) {
    BuilderGpulet& gpulet = gpulets_[*at];
    const std::vector<Neighbour> beside = neighbours_of(gpulet);
    bool changed = false;
    for (BatchSlot& slot : gpulet.slots) {
      const LatencyCurve& curve =
          context_->curve_beside(slot.model, devices_[device].device_class, gpulet.size, beside);
      changed = changed || slot.curve != &curve;
      slot.curve = &curve;
    }
    if (!changed) continue;
    gpulet.known.reset();
    gpulet.load = load_of(gpulet.slots);
  }
}

void PlanBuilder::update_divisible(std::uint32_t device) {
  BuilderDevice& changed = devices_[device];
  const bool divisible =
      changed.partitions > 0 &&
      size_taken(class_of(device), changed.free_percent, changed.partitions, 0).has_value();
  if (divisible && !changed.divisible_index) {
    changed.divisible_index = divisible_.size();
    divisible_.push_back(device);
  } else if (!divisible && changed.divisible_index) {
    devices_[divisible_.back()].divisible_index = changed.divisible_index;
    divisible_[*changed.divisible_index] = divisible_.back();
    divisible_.pop_back();
    changed.divisible_index.reset();
  }
}

namespace {

class Resumption {
 public:
  Resumption(PlanContext& context, const std::optional<DeviceKey>& cleared)
      : context_(context), cleared_(cleared), builder_(context) {}

  PlanBuilder run() {
    for (const RunningDevice& device : busiest_first()) resume(device);
    // The kept gpulets may serve more of their models.
    for (const auto& [gpulet, model] : served_) {
      if (builder_.unplaced(model) <= 0) continue;
      const double most = most_of(builder_, gpulet, model, builder_.unplaced(model));
      if (most > 0) builder_.add(gpulet, model, most);
    }
    return std::move(builder_);
  }

 private:
  struct Running {
    const PlannedGpulet* gpulet = nullptr;
    double processes = 1;  // that share its instance, including itself
  };
  struct RunningDevice {
    std::size_t device_class = 0;
    double busy = 0;  // sum over its gpulets of share * busy fraction of a round
    std::vector<Running> gpulets;
  };

  [[nodiscard]] std::vector<RunningDevice> busiest_first() const {
    std::map<DeviceKey, RunningDevice> by_key;
    for (const PlannedGpulet& gpulet : context_.input().current->gpulets) {
      const auto known = context_.find_device(gpulet.device);
      if (!known || gpulet.device == cleared_) continue;
      RunningDevice& device = by_key[gpulet.device];
      device.device_class = context_.class_of(*known);
      const auto together =
          std::find_if(device.gpulets.begin(), device.gpulets.end(), [&gpulet](const Running& one) {
            return gpulet.instance && one.gpulet->instance == gpulet.instance;
          });
      if (together == device.gpulets.end()) {
        device.gpulets.push_back({&gpulet});
      } else {
        ++together->processes;
      }
      for (const Assignment& one : gpulet.assignments)
        device.busy += gpulet.size.percent * one.latency_ms / gpulet.duty_cycle_ms;
    }
    std::vector<RunningDevice> devices;
    devices.reserve(by_key.size());
    for (auto& [key, device] : by_key) devices.push_back(std::move(device));
    std::stable_sort(
        devices.begin(), devices.end(),
        [](const RunningDevice& a, const RunningDevice& b) { return a.busy > b.busy; });
    return devices;
  }

  void resume(const RunningDevice& device) {
    std::optional<std::uint32_t> host;
    for (const Running& running : device.gpulets) {
      const auto size = context_.classes()[device.device_class].find_size(running.gpulet->size);
      if (size) resume(running, device.device_class, *size, &host);
    }
  }

  void resume(const Running& running, std::size_t device_class, std::uint32_t size,
              std::optional<std::uint32_t>* host) {
    std::optional<std::size_t> made;
    for (const Assignment& one : running.gpulet->assignments) {
      const auto known = context_.find_model(one.model);
      if (!known) continue;
      const std::size_t model = *known;
      double rate = std::min(one.rate * running.processes, builder_.unplaced(model));
      if (rate <= 0) continue;
      if (!made) {
        rate = std::min(rate, max_rate_of_new(model, device_class, size, *host));
        if (rate <= 0) continue;
        if (!*host) *host = builder_.open(device_class);
        made = builder_.add_gpulet(**host, size, model, rate);
      } else {
        rate = most_of(builder_, *made, model, rate);
        if (rate <= 0) continue;
        builder_.add(*made, model, rate);
      }
      served_.emplace_back(*made, model);
    }
  }

  [[nodiscard]] double max_rate_of_new(std::size_t model, std::size_t device_class,
                                       std::uint32_t size,
                                       const std::optional<std::uint32_t>& host) {
    if (host) return builder_.max_rate_of_new(*host, size, model);
    if (!builder_.can_open(device_class) || !builder_.memory_fits_empty(model, device_class))
      return 0;
    const double limit_mb = context_.classes()[device_class].example->memory_mb;
    return context_
        .own_curve(model, device_class, size, std::numeric_limits<double>::infinity(),
                   limit_mb > 0 ? limit_mb : std::numeric_limits<double>::infinity())
        .max_rate;
  }

  PlanContext& context_;
  const std::optional<DeviceKey>& cleared_;
  PlanBuilder builder_;
  std::vector<std::pair<std::size_t, std::size_t>> served_;  // gpulet and model
};

}  // namespace

PlanBuilder resume_current_plan(PlanContext& context, const std::optional<DeviceKey>& cleared) {
  return Resumption(context, cleared).run();
}

namespace {

void fill_gpulet(PlanBuilder& builder, std::uint32_t device, const FilledGpulet& filled) {
  std::optional<std::size_t> gpulet;
  for (const Portion& portion : filled.portions) {
    const double wanted = std::min(portion.rate, builder.unplaced(portion.model));
    if (wanted <= 0) continue;
    if (!gpulet) {
      const double most = builder.max_rate_of_new(device, filled.size, portion.model);
      if (most <= 0) continue;
      gpulet = builder.add_gpulet(device, filled.size, portion.model, std::min(wanted, most));
    } else if (const double most = most_of(builder, *gpulet, portion.model, wanted); most > 0) {
      builder.add(*gpulet, portion.model, most);
    }
  }
}

// Whether any gpulet of the device can be created. An open device without one counts as used.
bool holds_anything(const PlanContext& context, const PlanBuilder& builder,
                    const FilledDevice& filled) {
  for (const FilledGpulet& gpulet : filled.gpulets) {
    for (const Portion& portion : gpulet.portions) {
      if (std::min(portion.rate, builder.unplaced(portion.model)) > 0 &&
          builder.memory_fits_empty(portion.model, filled.device_class) &&
          context.curve(portion.model, filled.device_class, gpulet.size).max_rate > 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

PlanBuilder build_from(PlanContext& context, const std::vector<FilledDevice>& devices) {
  PlanBuilder builder(context);
  for (const FilledDevice& filled : devices) {
    if (!builder.can_open(filled.device_class) || !holds_anything(context, builder, filled))
      continue;
    const std::uint32_t device = builder.open(filled.device_class);
    for (const FilledGpulet& gpulet : filled.gpulets) fill_gpulet(builder, device, gpulet);
  }
  for (std::size_t model = 0; model < context.models().size(); ++model) {
    while (builder.unplaced(model) > 0 &&
           add_spare(builder, model, largest_spare_capacity(builder, model))) {
    }
  }
  return builder;
}

}  // namespace gpulet::schedule
