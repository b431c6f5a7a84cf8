#include "schedule/cover/device_choices.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gpulet::schedule {

DeviceCapacity::DeviceCapacity(const DeviceClass& known)
    : known_(&known),
      free_percent_(kWholeDevice.percent),
      partitions_(known.example->max_partitions) {
  if (!known.divisions.empty()) taken_.assign(known.sizes.size(), 0);
}

bool DeviceCapacity::holds(std::uint32_t size) const {
  if (taken_.empty()) return partitions_ > 0 && known_->sizes[size] <= free_percent_;
  return std::any_of(known_->divisions.begin(), known_->divisions.end(),
                     [&](const std::vector<std::uint32_t>& division) {
                       for (std::uint32_t at = 0; at < taken_.size(); ++at) {
                         if (taken_[at] + (at == size ? 1U : 0U) > division[at]) return false;
                       }
                       return true;
                     });
}

void DeviceCapacity::take(std::uint32_t size) {
  free_percent_ -= known_->sizes[size];
  --partitions_;
  if (!taken_.empty()) ++taken_[size];
}

double DeviceCapacity::worth(const Relaxation& relaxation, std::size_t device_class) const {
  return taken_.empty() ? relaxation.price_of_share(device_class, partitions_, free_percent_)
                        : relaxation.price_beside(device_class, taken_);
}

namespace {

constexpr double kWhole = 1 + kRoundingSlack;
// Up to this many models, all sets are tried, within the work allowed for one call.
constexpr std::size_t kFewItems = 8;
constexpr std::uint64_t kMaxWork = 600;
// With more models, one set is filled for each of a series of duty cycles, with the items that are
// best at it.
constexpr double kNextCycle = 1.25;
constexpr std::size_t kTriedPerCycle = 12;
constexpr std::size_t kPartsPerCycle = 3;
constexpr std::size_t kSaturating = 8;
// Next to other gpulets each model needs a curve of its own, so only those that save most without
// them are considered.
constexpr std::size_t kMostBeside = 48;

}  // namespace

const std::vector<GpuletChoice>& GpuletChooser::best(const GpuletSite& site,
                                                     const Remaining& remaining,
                                                     std::size_t count) {
  best_.clear();
  slots_.clear();
  count_ = count;
  list_items(site, remaining);
  const bool is_few = items_.size() <= kFewItems;
  last_work_ = is_few ? work_ + kMaxWork : std::numeric_limits<std::uint64_t>::max();
  if (is_few) {
    search_all(0, {0, 0, site.free_mb});
  } else {
    note_saturating(site.free_mb);
    search_cycles(site.free_mb);
  }
  return best_;
}

void GpuletChooser::list_items(const GpuletSite& site, const Remaining& remaining) {
  items_.clear();
  for (std::uint32_t model = 0; model < remaining.rates.size(); ++model) {
    if (remaining.rates[model] <= 0) continue;
    Item item;
    item.curve = &context_->curve(model, site.device_class, site.size);
    if (item.curve->max_rate <= 0) continue;
    item.memory_mb = context_->on_class(model, site.device_class).memory_mb;
    if (item.memory_mb > site.free_mb) continue;
    item.model = model;
    item.slo_ms = context_->models()[model]->slo_ms;
    item.rate = remaining.rates[model];
    item.own_curve = item.curve;
    if (context_->classes()[site.device_class].chooses_processes) {
      item.own_curve =
          &context_->own_curve(model, site.device_class, site.size, item.rate, site.free_mb);
    }
    item.cost = remaining.costs[model];
    item.share = item.rate / relaxation_->max_rate(model, site.device_class, site.size, item.rate);
    items_.push_back(item);
  }
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return a.cost * b.share > b.cost * a.share;
  });
  if (!site.neighbours.empty() && context_->interferes(site.device_class)) slow_items(site);
}

void GpuletChooser::slow_items(const GpuletSite& site) {
  if (items_.size() > kMostBeside) items_.resize(kMostBeside);
  for (Item& item : items_) {
    item.curve = &context_->curve_beside(item.model, site.device_class, site.size, site.neighbours);
    item.own_curve = item.curve;
  }
  std::erase_if(items_, [](const Item& item) { return item.curve->max_rate <= 0; });
}

bool GpuletChooser::has_slot(std::uint32_t model) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const BatchSlot& slot) { return slot.model == model; });
}

bool GpuletChooser::take(const Item& item, Taken* taken) {
  if (taken->share + item.share > kWhole || item.memory_mb > taken->free_mb) return false;
  slots_.push_back({item.curve, item.rate, item.slo_ms, item.model});
  work_ += slots_.size();
  if (!min_duty_cycle_ms(slots_)) {
    slots_.pop_back();
    return false;
  }
  taken->value += item.cost;
  taken->share += item.share;
  taken->free_mb -= item.memory_mb;
  return true;
}

// Visits all sets of items, depth first.
void GpuletChooser::search_all(std::size_t first, const Taken& taken) {
  if (!slots_.empty()) note(taken.value, nullptr);
  for (const Item& item : items_) {
    if (is_over()) return;
    if (!has_slot(item.model)) note_with_part(item, taken);
  }
  for (std::size_t index = first; index < items_.size(); ++index) {
    if (is_over()) return;
    Taken more = taken;
    if (!take(items_[index], &more)) continue;
    search_all(index + 1, more);
    slots_.pop_back();
  }
}

void GpuletChooser::note_saturating(double free_mb) {
  order_.clear();
  for (std::uint32_t index = 0; index < items_.size(); ++index) {
    const Item& item = items_[index];
    const double part = std::min(1.0, item.own_curve->max_rate / item.rate);
    order_.emplace_back(-item.cost * part, index);
  }
  const std::size_t tried = std::min(order_.size(), kSaturating);
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(tried),
                    order_.end());
  order_.resize(tried);
  for (const auto& [gain, index] : order_) note_with_part(items_[index], {0, 0, free_mb});
}

void GpuletChooser::search_cycles(double free_mb) {
  double shortest_ms = std::numeric_limits<double>::infinity();
  double longest_ms = 0;
  for (const Item& item : items_) {
    shortest_ms = std::min(shortest_ms, item.curve->latency_ms[0]);
    longest_ms = std::max(longest_ms, item.slo_ms - item.curve->latency_ms[0]);
  }
  double cycle_ms = shortest_ms;
  while (cycle_ms < longest_ms && !is_over()) {
    fill_for(cycle_ms, free_mb);
    cycle_ms *= kNextCycle;
  }
}

void GpuletChooser::fill_for(double duty_cycle_ms, double free_mb) {
  order_.clear();
  for (std::uint32_t index = 0; index < items_.size(); ++index) {
    const Item& item = items_[index];
    const double arrivals = item.rate / item.curve->processes * duty_cycle_ms / 1000;
    if (!(arrivals <= item.curve->max_batch)) continue;
    const auto batch = std::max(1U, static_cast<std::uint32_t>(std::ceil(arrivals)));
    const double latency_ms = item.curve->latency_ms[batch - 1];
    if (latency_ms > duty_cycle_ms || latency_ms + duty_cycle_ms > item.slo_ms) continue;
    order_.emplace_back(-item.cost / latency_ms, index);
  }
  const std::size_t tried = std::min(order_.size(), kTriedPerCycle);
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(tried),
                    order_.end());
  order_.resize(tried);
  slots_.clear();
  Taken taken{0, 0, free_mb};
  for (const auto& [gain, index] : order_) take(items_[index], &taken);
  if (slots_.empty()) return;
  note(taken.value, nullptr);
  std::size_t parts = 0;
  for (const auto& [gain, index] : order_) {
    if (has_slot(items_[index].model)) continue;
    note_with_part(items_[index], taken);
    if (++parts == kPartsPerCycle) break;
  }
  slots_.clear();
}

void GpuletChooser::note_with_part(const Item& item, const Taken& taken) {
  if (item.memory_mb > taken.free_mb || taken.share >= 1) return;
  work_ += slots_.size() + 1;
  const LatencyCurve& curve = slots_.empty() ? *item.own_curve : *item.curve;
  double rate = max_rate_beside(slots_, curve, item.slo_ms);
  if (rate <= item.rate * kRoundingSlack) return;
  double value = taken.value + item.cost;
  if (rate >= item.rate * (1 - kRoundingSlack)) {
    // search_all tries this set, with one process.
    if (items_.size() <= kFewItems && !curve.exclusive) return;
    rate = item.rate;
  } else {
    // The rest may cost less than nothing if larger batches serve it later. That does not make this
    // choice better.
    value -= relaxation_->cost(item.model, item.rate - rate);
  }
  if (best_.size() == count_ && value <= best_.back().value) return;
  slots_.push_back({&curve, rate, item.slo_ms, item.model});
  const bool holds = min_duty_cycle_ms(slots_).has_value();
  slots_.pop_back();
  if (!holds) return;
  const Portion part{item.model, rate};
  note(value, &part);
}

void GpuletChooser::note(double value, const Portion* part) {
  if (best_.size() == count_ && value <= best_.back().value) return;
  GpuletChoice choice;
  choice.value = value;
  choice.portions.reserve(slots_.size() + 1);
  for (const BatchSlot& slot : slots_) choice.portions.push_back({slot.model, slot.rate});
  if (part != nullptr) choice.portions.push_back(*part);
  const auto later = std::find_if(best_.begin(), best_.end(),
                                  [&](const GpuletChoice& known) { return known.value < value; });
  for (auto known = later; known != best_.begin(); --known) {
    const GpuletChoice& before = *std::prev(known);
    if (before.value > value) break;
    if (before.portions == choice.portions) return;
  }
  best_.insert(later, std::move(choice));
  if (best_.size() > count_) best_.pop_back();
}

namespace {

constexpr std::size_t kNoGpulet = std::numeric_limits<std::size_t>::max();

void keep_best(std::vector<DeviceChoice>* choices, std::size_t count) {
  std::stable_sort(choices->begin(), choices->end(),
                   [](const DeviceChoice& a, const DeviceChoice& b) { return a.value > b.value; });
  // Devices that were filled in another order are equal.
  const auto same = [](const DeviceChoice& a, const DeviceChoice& b) {
    return a.value == b.value && a.remaining.rates == b.remaining.rates;
  };
  choices->erase(std::unique(choices->begin(), choices->end(), same), choices->end());
  if (choices->size() > count) choices->resize(count);
}

}  // namespace

void take_from(Remaining* remaining, const Portion& portion, const PlanContext& context,
               const Relaxation& relaxation) {
  double& rate = remaining->rates[portion.model];
  rate -= portion.rate;
  if (rate <= kRoundingSlack * context.models()[portion.model]->rate) rate = 0;
  remaining->costs[portion.model] = relaxation.cost(portion.model, rate);
}

std::vector<DeviceChoice> DeviceChooser::best(std::uint32_t device_class,
                                              const Remaining& remaining, SearchWidth width,
                                              std::size_t count) {
  const DeviceClass& known = context_->classes()[device_class];
  const Device& example = *known.example;
  PartialDevice whole{{}, DeviceCapacity(known), 0};
  whole.choice.filled.device_class = device_class;
  whole.choice.remaining = remaining;
  whole.free_mb =
      example.memory_mb > 0 ? example.memory_mb : std::numeric_limits<double>::infinity();
  std::vector<PartialDevice> partial;
  partial.push_back(std::move(whole));
  std::vector<DeviceChoice> choices;
  std::vector<Extension> extensions;
  while (!partial.empty()) {
    extensions.clear();
    for (std::size_t at = 0; at < partial.size(); ++at)
      list_extensions(partial, at, width, &extensions);
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](const Extension& a, const Extension& b) { return a.value > b.value; });
    for (std::size_t at = 0; at < std::min(extensions.size(), count); ++at) {
      choices.push_back(with(partial[extensions[at].device], extensions[at]).choice);
      apply_slowdowns(remaining, &choices.back());
    }
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](const Extension& a, const Extension& b) { return a.promise > b.promise; });
    std::vector<PartialDevice> next;
    for (const Extension& extension : extensions) {
      if (next.size() == width.devices) break;
      const PartialDevice& before = partial[extension.device];
      if (!before.capacity.is_last()) next.push_back(with(before, extension));
    }
    partial = std::move(next);
  }
  keep_best(&choices, count);
  return choices;
}

void DeviceChooser::list_extensions(const std::vector<PartialDevice>& devices, std::size_t at,
                                    SearchWidth width, std::vector<Extension>* extensions) {
  const PartialDevice& device = devices[at];
  const std::uint32_t device_class = device.choice.filled.device_class;
  const DeviceClass& known = context_->classes()[device_class];
  const std::vector<Neighbour> beside = neighbours(device.choice.filled, kNoGpulet);
  for (auto size = static_cast<std::uint32_t>(known.sizes.size()); size-- > 0;) {
    if (!device.capacity.holds(size)) continue;
    const double free_mb = std::min(device.free_mb, known.gpulet_mb[size]);
    const auto& choices = gpulets_.best({device_class, size, free_mb, beside},
                                        device.choice.remaining, width.choices);
    DeviceCapacity capacity = device.capacity;
    capacity.take(size);
    const double promised = capacity.worth(*relaxation_, device_class);
    for (const GpuletChoice& choice : choices) {
      const double value = device.choice.value + choice.value;
      extensions->push_back({at, size, choice, value, value + promised});
    }
    // No other gpulet could use the rest that a smaller one would leave.
    if (device.capacity.is_last() && !choices.empty()) break;
  }
}

DeviceChooser::PartialDevice DeviceChooser::with(const PartialDevice& device,
                                                 const Extension& extension) const {
  const std::uint32_t device_class = device.choice.filled.device_class;
  PartialDevice next = device;
  next.capacity.take(extension.size);
  for (const Portion& portion : extension.choice.portions) {
    take_from(&next.choice.remaining, portion, *context_, *relaxation_);
    double memory_mb = context_->on_class(portion.model, device_class).memory_mb;
    if (extension.choice.portions.size() == 1) {
      const LatencyCurve& own = context_->own_curve(portion.model, device_class, extension.size,
                                                    portion.rate, device.free_mb);
      if (own.exclusive) memory_mb *= own.processes;
    }
    next.free_mb -= memory_mb;
  }
  next.choice.filled.gpulets.push_back({extension.size, extension.choice.portions});
  next.choice.value = extension.value;
  return next;
}

std::vector<Neighbour> DeviceChooser::neighbours(const FilledDevice& filled, std::size_t of) const {
  std::vector<Neighbour> beside;
  if (!context_->interferes(filled.device_class)) return beside;
  for (std::size_t index = 0; index < filled.gpulets.size(); ++index) {
    if (index == of) continue;
    Neighbour& neighbour = beside.emplace_back();
    neighbour.size = filled.gpulets[index].size;
    for (const Portion& portion : filled.gpulets[index].portions) {
      neighbour.models.push_back(portion.model);
    }
    std::sort(neighbour.models.begin(), neighbour.models.end());
  }
  return beside;
}

// Each gpulet was chosen next to the earlier ones, which become slower next to the later ones.
// Returns the rates that no longer fit to the remaining ones.
void DeviceChooser::apply_slowdowns(const Remaining& before, DeviceChoice* choice) {
  FilledDevice& filled = choice->filled;
  if (filled.gpulets.size() < 2 || !context_->interferes(filled.device_class)) return;
  const FilledDevice planned = filled;
  std::vector<BatchSlot> slots;
  for (std::size_t index = 0; index < planned.gpulets.size(); ++index) {
    const std::vector<Neighbour> beside = neighbours(planned, index);
    FilledGpulet& gpulet = filled.gpulets[index];
    gpulet.portions.clear();
    slots.clear();
    for (Portion portion : planned.gpulets[index].portions) {
      const LatencyCurve& curve =
          context_->curve_beside(portion.model, filled.device_class, gpulet.size, beside);
      const double slo_ms = context_->models()[portion.model]->slo_ms;
      portion.rate = max_rate_beside(slots, curve, slo_ms, 0, portion.rate);
      if (portion.rate <= kRoundingSlack * before.rates[portion.model]) continue;
      slots.push_back({&curve, portion.rate, slo_ms, portion.model});
      if (min_duty_cycle_ms(slots)) {
        gpulet.portions.push_back(portion);
      } else {
        slots.pop_back();
      }
    }
  }
  if (filled == planned) return;
  choice->remaining = before;
  choice->value = 0;
  for (const FilledGpulet& gpulet : filled.gpulets) {
    for (const Portion& portion : gpulet.portions) {
      choice->value += choice->remaining.costs[portion.model];
      take_from(&choice->remaining, portion, *context_, *relaxation_);
      choice->value -= choice->remaining.costs[portion.model];
    }
  }
}

}  // namespace gpulet::schedule
