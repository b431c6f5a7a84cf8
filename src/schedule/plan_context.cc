#include "schedule/plan_context.h"

#include <algorithm>
#include <set>
#include <utility>

namespace gpulet::schedule {
namespace {

bool alike(const Device& a, const Device& b) {
  return a.type == b.type && a.max_partitions == b.max_partitions && a.memory_mb == b.memory_mb &&
         a.partitioning == b.partitioning && a.sizes == b.sizes && a.mig == b.mig &&
         a.processes_per_instance == b.processes_per_instance;
}

// Sets the memory of each gpulet size and, under MIG, the divisions.
void describe_gpulets(DeviceClass* known) {
  const Device& device = *known->example;
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  if (!device.mig) {
    known->gpulet_mb.assign(known->sizes.size(), kNoLimit);
    return;
  }
  const auto profiles = device.mig->profiles();
  for (const partition::MigProfile& profile : profiles) {
    const double part = static_cast<double>(profile.memory_slices) / device.mig->memory_slices();
    const double of_device_mb = device.memory_mb > 0 ? device.memory_mb * part : kNoLimit;
    known->gpulet_mb.push_back(std::min(profile.memory_mb, of_device_mb));
  }
  std::set<std::vector<std::uint32_t>> divisions;
  for (const partition::MigLayout& layout : device.mig->maximal_layouts()) {
    std::vector<std::uint32_t> counts(profiles.size(), 0);
    for (const partition::MigInstance& instance : layout)
      ++counts[static_cast<std::size_t>(device.mig->find(instance.slices) - profiles.data())];
    divisions.insert(std::move(counts));
  }
  known->divisions.assign(divisions.begin(), divisions.end());
}

std::vector<std::uint32_t> measured_batches(const profile::LatencyTable& table) {
  std::vector<std::uint32_t> batches;
  batches.reserve(table.samples().size());
  for (const profile::LatencySample& sample : table.samples()) batches.push_back(sample.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

}  // namespace

std::optional<std::uint32_t> DeviceClass::find_size(Share size) const {
  const auto found = std::lower_bound(sizes.begin(), sizes.end(), size.percent);
  if (found == sizes.end() || *found != size.percent) return std::nullopt;
  return static_cast<std::uint32_t>(found - sizes.begin());
}

PlanContext::PlanContext(const PlanInput& input, Division division)
    : input_(&input), slowdowns_(*this) {
  models_.reserve(input.demands.size());
  for (const ModelDemand& demand : input.demands) {
    if (demand.rate > 0) models_.push_back(&demand);
  }
  std::sort(models_.begin(), models_.end(),
            [](const ModelDemand* a, const ModelDemand* b) { return a->name < b->name; });
  sort_devices_into_classes(division);
  device_budget_ = devices_.size();
  if (input.options.max_devices) {
    device_budget_ = std::min<std::size_t>(device_budget_, *input.options.max_devices);
  }
  first_shared_.resize(classes_.size());
  for (std::size_t index = 0; index < classes_.size(); ++index) {
    add_curves(index);
    if (classes_[index].chooses_processes) add_shared_curves(index);
  }
  finish_curves();
}

void PlanContext::finish_curves() {
  // The latencies have their final address only now.
  const bool random_arrivals = input_->options.headroom == Headroom::poisson;
  std::size_t first = 0;
  std::size_t next = 0;
  for (std::size_t index = 0; index < classes_.size(); ++index) {
    for (std::size_t model = 0; model < models_.size(); ++model) {
      ModelOnClass& known = on_class_[index * models_.size() + model];
      double best_rate = 0;
      for (std::uint32_t size = 0; size < classes_[index].sizes.size(); ++size) {
        LatencyCurve& curve = curves_[next++];
        curve.latency_ms = latencies_ms_.data() + first;
        curve.random_arrivals = random_arrivals;
        if (known.profile != nullptr)
          curve.margin = margin_of(input_->options.margin, known.profile->latency);
        first += curve.max_batch;
        rate_curve(&curve, models_[model]->slo_ms);
        if (curve.max_rate <= best_rate) continue;
        best_rate = curve.max_rate;
        known.best_size = size;
      }
    }
  }
  first = 0;
  for (std::size_t index = 0; index < classes_.size(); ++index) {
    for (std::size_t at = 0; at + 1 < first_shared_[index].size(); ++at) {
      const double slo_ms = models_[at / classes_[index].sizes.size()]->slo_ms;
      for (std::size_t one = first_shared_[index][at]; one < first_shared_[index][at + 1]; ++one) {
        LatencyCurve& curve = shared_curves_[one];
        curve.latency_ms = shared_latencies_ms_.data() + first;
        curve.random_arrivals = random_arrivals;
        first += curve.max_batch;
        rate_curve(&curve, slo_ms);
      }
    }
  }
}

void PlanContext::sort_devices_into_classes(Division division) {
  devices_.reserve(input_->cluster.devices.size());
  for (const Device& device : input_->cluster.devices) {
    const Division divided = device.mig ? Division::by_mig : Division::by_share;
    if (division == Division::either || division == divided) devices_.push_back(&device);
  }
  const auto by_key = [](const Device* a, const Device* b) { return a->key < b->key; };
  if (!std::is_sorted(devices_.begin(), devices_.end(), by_key)) {
    std::sort(devices_.begin(), devices_.end(), by_key);
  }
  for (std::uint32_t index = 0; index < devices_.size(); ++index) {
    const Device& device = *devices_[index];
    auto found = std::find_if(classes_.begin(), classes_.end(), [&](const DeviceClass& known) {
      return alike(*known.example, device);
    });
    if (found == classes_.end()) {
      DeviceClass added;
      added.example = &device;
      added.profile = &input_->profiles->find(device.type)->second;
      if (input_->interference != nullptr && !device.mig) {  // MIG isolates instances
        const auto model = input_->interference->find(device.type);
        if (model != input_->interference->end()) added.interference = &model->second;
      }
      for (const Share size : device.sizes) added.sizes.push_back(size.percent);
      describe_gpulets(&added);
      added.chooses_processes =
          device.mig && device.processes_per_instance > 1 && added.profile->knows_processes();
      found = classes_.insert(classes_.end(), std::move(added));
    }
    found->devices.push_back(index);
    class_of_.push_back(static_cast<std::uint32_t>(found - classes_.begin()));
  }
}

std::optional<std::uint32_t> PlanContext::find_model(std::string_view name) const {
  const auto found = std::lower_bound(
      models_.begin(), models_.end(), name,
      [](const ModelDemand* demand, std::string_view wanted) { return demand->name < wanted; });
  if (found == models_.end() || (*found)->name != name) return std::nullopt;
  return static_cast<std::uint32_t>(found - models_.begin());
}

std::optional<std::uint32_t> PlanContext::find_device(const DeviceKey& key) const {
  const auto found = std::lower_bound(
      devices_.begin(), devices_.end(), key,
      [](const Device* device, const DeviceKey& wanted) { return device->key < wanted; });
  if (found == devices_.end() || (*found)->key != key) return std::nullopt;
  return static_cast<std::uint32_t>(found - devices_.begin());
}

bool PlanContext::servable(std::size_t model) const {
  for (std::size_t index = 0; index < classes_.size(); ++index) {
    const double limit_mb = classes_[index].example->memory_mb;
    const ModelOnClass& known = on_class(model, index);
    if (curve(model, index, known.best_size).max_rate > 0 &&
        (limit_mb == 0 || known.memory_mb <= limit_mb)) {
      return true;
    }
  }
  return false;
}

void PlanContext::add_curves(std::size_t device_class) {
  const DeviceClass& added = classes_[device_class];
  first_curve_.push_back(curves_.size());
  curves_.reserve(curves_.size() + models_.size() * added.sizes.size());
  for (const ModelDemand* demand : models_) {
    ModelOnClass known;
    known.profile = added.profile->find(demand->name);
    if (known.profile == nullptr) {
      curves_.resize(curves_.size() + added.sizes.size());
    } else {
      const std::uint32_t processes =
          added.chooses_processes ? 1 : added.example->processes_per_instance;
      known.memory_mb = known.profile->memory_mb.value_or(0) * processes;
      known.measured = measured_batches(known.profile->latency);
      for (std::size_t size = 0; size < added.sizes.size(); ++size) {
        if (known.memory_mb > added.gpulet_mb[size]) {
          curves_.emplace_back();
        } else {
          curves_.push_back(curve_of(*demand, known.profile->latency, known.measured,
                                     Share{added.sizes[size]}, 1, &latencies_ms_));
        }
        curves_.back().processes = processes;
      }
    }
    on_class_.push_back(std::move(known));
  }
}

void PlanContext::add_shared_curves(std::size_t device_class) {
  const DeviceClass& known = classes_[device_class];
  std::vector<std::size_t>& first = first_shared_[device_class];
  for (const ModelDemand* demand : models_) {
    const profile::ModelProfile* const profile = known.profile->find(demand->name);
    for (std::size_t size = 0; size < known.sizes.size(); ++size) {
      first.push_back(shared_curves_.size());
      if (profile == nullptr) continue;
      for (const auto& [processes, table] : profile->shared_latency) {
        if (processes > known.example->processes_per_instance ||
            processes * profile->memory_mb.value_or(0) > known.gpulet_mb[size])
          break;
        LatencyCurve& curve = shared_curves_.emplace_back(
            curve_of(*demand, table, measured_batches(table), Share{known.sizes[size]}, processes,
                     &shared_latencies_ms_));
        curve.margin = margin_of(input_->options.margin, table);
        curve.processes = processes;
        curve.exclusive = true;
      }
    }
  }
  first.push_back(shared_curves_.size());
}

std::span<const LatencyCurve> PlanContext::shared_curves(std::size_t model,
                                                         std::size_t device_class,
                                                         std::size_t size) const {
  const std::vector<std::size_t>& first = first_shared_[device_class];
  if (first.empty()) return {};
  const std::size_t at = model * classes_[device_class].sizes.size() + size;
  return std::span(shared_curves_).subspan(first[at], first[at + 1] - first[at]);
}

const LatencyCurve& PlanContext::own_curve(std::size_t model, std::size_t device_class,
                                           std::size_t size, double rate, double free_mb) const {
  const LatencyCurve* best = &curve(model, device_class, size);
  const double memory_mb = on_class(model, device_class).memory_mb;
  for (const LatencyCurve& shared : shared_curves(model, device_class, size)) {
    if (best->max_rate * (1 + kRoundingSlack) >= rate || shared.processes * memory_mb > free_mb)
      break;
    if (shared.max_rate > best->max_rate) best = &shared;
  }
  return *best;
}

LatencyCurve PlanContext::curve_of(const ModelDemand& demand, const profile::LatencyTable& table,
                                   const std::vector<std::uint32_t>& breakpoints, Share size,
                                   std::uint32_t turns, std::vector<double>* latencies_ms) const {
  LatencyCurve curve;
  const double margin = margin_of(input_->options.margin, table);
  const double limit_ms = longest_useful_ms(demand.slo_ms, turns);
  const std::uint32_t last = std::min(demand.max_batch, table.largest_batch(size));
  for (const std::uint32_t batch : breakpoints)
    curve.cv = std::max(curve.cv, table.cv(batch, size).value_or(0.0));

  // The table is linear between measured batches, so it is looked up at those only.
  double longest_ms = 0;
  const auto keep = [&](double measured_ms) {
    const double latency_ms = longest_ms = std::max(longest_ms, measured_ms);
    if (!(latency_ms <= limit_ms)) return false;
    latencies_ms->push_back(latency_ms);
    ++curve.max_batch;
    return true;
  };
  std::uint32_t from = 1;
  double from_ms = table.latency_ms(1, size).value_or(0) * margin;
  bool within = last >= 1 && from_ms > 0 && keep(from_ms);
  for (std::size_t breakpoint = 0; within && from < last; ++breakpoint) {
    const std::uint32_t to =
        breakpoint < breakpoints.size() ? std::min(breakpoints[breakpoint], last) : last;
    if (to <= from) continue;
    const double to_ms = table.latency_ms(to, size).value_or(0) * margin;
    if (!(to_ms > 0)) break;
    const double slope = (to_ms - from_ms) / (to - from);
    for (std::uint32_t batch = from + 1; within && batch <= to; ++batch) {
      within = keep(batch == to ? to_ms : from_ms + slope * (batch - from));
    }
    from = to;
    from_ms = to_ms;
  }
  return curve;
}

std::size_t PlanContext::Hash::operator()(const std::vector<std::uint32_t>& key) const {
  std::uint64_t hash = 0;
  for (const std::uint32_t word : key) hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(hash ^ hash >> 32);
}

const LatencyCurve& PlanContext::curve_beside(std::size_t model, std::size_t device_class,
                                              std::size_t size,
                                              std::span<const Neighbour> neighbours) {
  ++curve_lookups_;
  const LatencyCurve& alone = curve(model, device_class, size);
  if (neighbours.empty() || alone.max_batch == 0 || !interferes(device_class)) return alone;
  // Sorted, so that the same neighbours add up to the same sum, bit by bit.
  std::vector<Neighbour> sorted;
  if (!std::is_sorted(neighbours.begin(), neighbours.end())) {
    sorted.assign(neighbours.begin(), neighbours.end());
    std::sort(sorted.begin(), sorted.end());
    neighbours = sorted;
  }
  const ModelAtSize self{static_cast<std::uint32_t>(device_class),
                         static_cast<std::uint32_t>(model), static_cast<std::uint32_t>(size)};
  key_.assign({self.device_class, self.model, self.size});
  for (const Neighbour& neighbour : neighbours) {
    key_.push_back(neighbour.size);
    key_.push_back(static_cast<std::uint32_t>(neighbour.models.size()));
    key_.insert(key_.end(), neighbour.models.begin(), neighbour.models.end());
  }
  const auto [found, added] = curves_beside_.try_emplace(key_);
  SlowedCurve& slowed = found->second;
  if (!added) return slowed.curve;
  const double slo_ms = models_[model]->slo_ms;
  const std::vector<double> slowdowns = slowdowns_beside(self, neighbours);
  slow_down(
      alone, slo_ms, [&slowdowns](std::uint32_t batch) { return slowdowns[batch - 1]; }, &slowed);
  rate_curve(&slowed.curve, slo_ms);
  return slowed.curve;
}

std::vector<double> PlanContext::slowdowns_beside(const ModelAtSize& self,
                                                  std::span<const Neighbour> neighbours) {
  std::vector<double> sum(curve(self.model, self.device_class, self.size).max_batch, 1.0);
  std::vector<double> worst(sum.size());
  for (const Neighbour& neighbour : neighbours) {
    std::fill(worst.begin(), worst.end(), 1.0);
    for (const std::uint32_t model : neighbour.models) {
      const std::vector<double>& one =
          slowdowns_.worst_by_batch(self, {self.device_class, model, neighbour.size});
      for (std::size_t at = 0; at < worst.size(); ++at) worst[at] = std::max(worst[at], one[at]);
    }
    for (std::size_t at = 0; at < sum.size(); ++at) {
      sum[at] = profile::add_neighbour(sum[at], worst[at]);
    }
  }
  return sum;
}

// The index of the place; models and sizes are few enough for 32 bits.
std::uint64_t SlowdownTables::key_of(const ModelAtSize& place) const {
  std::uint64_t number = place.model;
  for (std::uint32_t before = 0; before < place.device_class; ++before)
    number += context_->models().size() * context_->classes()[before].sizes.size();
  return number + place.size * context_->models().size();
}

const SlowdownTables::Breakpoints& SlowdownTables::breakpoints_of(const ModelAtSize& place) {
  const auto [found, added] = breakpoints_.try_emplace(key_of(place));
  Breakpoints& breakpoints = found->second;
  if (!added) return breakpoints;
  const DeviceClass& device_class = context_->classes()[place.device_class];
  const Share share{device_class.sizes[place.size]};
  const std::string& name = context_->models()[place.model]->name;
  const ModelOnClass& known = context_->on_class(place.model, place.device_class);
  const std::uint32_t max_batch =
      context_->curve(place.model, place.device_class, place.size).max_batch;
  breakpoints.batches.reserve(known.measured.size());
  breakpoints.traits.reserve(known.measured.size());
  for (const std::uint32_t batch : known.measured) {
    if (!known.profile->latency.latency_ms(batch, share)) continue;
    breakpoints.batches.push_back(batch);
    breakpoints.traits.push_back(device_class.interference->traits(name, batch, share));
    if (batch >= max_batch) break;
  }
  return breakpoints;
}

const SlowdownTable& SlowdownTables::between(const ModelAtSize& self, const ModelAtSize& other) {
  const auto [found, added] = tables_.try_emplace(key_of(self) << 32 | key_of(other));
  SlowdownTable& table = found->second;
  if (!added) return table;
  const profile::InterferenceModel& model = *context_->classes()[self.device_class].interference;
  const Breakpoints& others = breakpoints_of(other);
  const Breakpoints& selves = breakpoints_of(self);
  table.other_breakpoints = others.traits.size();
  table.worst.reserve(selves.traits.size() * table.other_breakpoints);
  for (const profile::BatchTraits& own : selves.traits) {
    double worst = 1;
    for (const profile::BatchTraits& beside : others.traits) {
      worst = std::max(worst, model.slowdown(own, beside));
      table.worst.push_back(worst);
    }
  }
  return table;
}

const std::vector<double>& SlowdownTables::worst_by_batch(const ModelAtSize& self,
                                                          const ModelAtSize& other) {
  const auto [found, added] = worst_by_batch_.try_emplace(key_of(self) << 32 | key_of(other));
  std::vector<double>& slowdowns = found->second;
  if (!added) return slowdowns;
  const profile::InterferenceModel& model = *context_->classes()[self.device_class].interference;
  const Breakpoints& others = breakpoints_of(other);
  const Breakpoints& selves = breakpoints_of(self);
  const std::uint32_t max_batch =
      context_->curve(self.model, self.device_class, self.size).max_batch;
  slowdowns.reserve(max_batch);
  double before = 1;
  std::uint32_t before_batch = 0;
  for (std::size_t at = 0; at < selves.batches.size(); ++at) {
    double here = 1;
    for (const profile::BatchTraits& beside : others.traits)
      here = std::max(here, model.slowdown(selves.traits[at], beside));
    const std::uint32_t here_batch = selves.batches[at];
    for (std::uint32_t batch = before_batch + 1; batch <= std::min(here_batch, max_batch);
         ++batch) {
      const double part = before_batch == 0 ? 1.0
                                            : static_cast<double>(batch - before_batch) /
                                                  (here_batch - before_batch);
      slowdowns.push_back(before + part * (here - before));
    }
    before = here;
    before_batch = here_batch;
  }
  slowdowns.resize(max_batch, before);
  return slowdowns;
}

}  // namespace gpulet::schedule
