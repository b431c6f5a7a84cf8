#include "schedule/cover/gpulet_choices.h"

#include <algorithm>
#include <limits>

namespace gpulet::schedule {
namespace {

constexpr double kWhole = 1 + kRoundingSlack;
// With so many models, all sets of them are tried, as far as the work for one question allows.
constexpr std::size_t kFewItems = 8;
constexpr std::uint64_t kMostWork = 600;
// With more, sets are filled up for each of a series of duty cycles, from the items that are best
// at it.
constexpr double kNextCycle = 1.25;
constexpr std::size_t kTriedPerCycle = 12;
constexpr std::size_t kPartsPerCycle = 3;
constexpr std::size_t kSaturating = 8;

}  // namespace

GpuletChooser::GpuletChooser(Problem& problem, const Relaxation& relaxation)
    : problem_(&problem), relaxation_(&relaxation) {}

const std::vector<GpuletChoice>& GpuletChooser::best(const GpuletPlace& place, const Rest& rest,
                                                     std::size_t count) {
  best_.clear();
  turns_.clear();
  count_ = count;
  list_items(place, rest);
  if (items_.size() <= kFewItems) {
    last_work_ = work_ + kMostWork;
    search_all(0, {0, 0, place.free_mb});
  } else {
    note_saturating(place.free_mb);
    search_cycles(place.free_mb);
  }
  return best_;
}

void GpuletChooser::list_items(const GpuletPlace& place, const Rest& rest) {
  items_.clear();
  for (std::uint32_t model = 0; model < rest.rates.size(); ++model) {
    if (rest.rates[model] <= 0) continue;
    Item item;
    item.row = &problem_->row(model, place.device_class, place.size);
    if (item.row->most_rate <= 0) continue;
    item.memory_mb = problem_->on_class(model, place.device_class).memory_mb;
    if (item.memory_mb > place.free_mb) continue;
    if (!place.neighbours.empty() && problem_->interferes(place.device_class)) {
      item.row = &problem_->row_beside(model, place.device_class, place.size, place.neighbours);
      if (item.row->most_rate <= 0) continue;
    }
    item.model = model;
    item.slo_ms = problem_->models()[model]->slo_ms;
    item.rate = rest.rates[model];
    item.cost = rest.costs[model];
    item.share =
        item.rate / relaxation_->most_rate(model, place.device_class, place.size, item.rate);
    items_.push_back(item);
  }
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return a.cost * b.share > b.cost * a.share;
  });
}

bool GpuletChooser::has_turn(std::uint32_t model) const {
  return std::any_of(turns_.begin(), turns_.end(),
                     [&](const Turn& turn) { return turn.model == model; });
}

bool GpuletChooser::take(const Item& item, Taken* taken) {
  if (taken->share + item.share > kWhole || item.memory_mb > taken->free_mb) return false;
  turns_.push_back({item.row, item.rate, item.slo_ms, item.model});
  work_ += turns_.size();
  if (!least_duty_cycle_ms(turns_)) {
    turns_.pop_back();
    return false;
  }
  taken->value += item.cost;
  taken->share += item.share;
  taken->free_mb -= item.memory_mb;
  return true;
}

// Depth first over all sets of items; what a share of time can still save is known beforehand.
void GpuletChooser::search_all(std::size_t first, const Taken& taken) {
  if (!turns_.empty()) note(taken.value, nullptr);
  for (const Item& item : items_) {
    if (work_ >= last_work_) return;
    if (!has_turn(item.model)) note_with_part(item, taken);
  }
  for (std::size_t index = first; index < items_.size(); ++index) {
    if (work_ >= last_work_) return;
    Taken more = taken;
    if (!take(items_[index], &more)) continue;
    search_all(index + 1, more);
    turns_.pop_back();
  }
}

void GpuletChooser::note_saturating(double free_mb) {
  order_.clear();
  for (std::uint32_t index = 0; index < items_.size(); ++index) {
    const Item& item = items_[index];
    const double part = std::min(1.0, item.row->most_rate / item.rate);
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
    shortest_ms = std::min(shortest_ms, item.row->latency_ms[0]);
    longest_ms = std::max(longest_ms, item.slo_ms - item.row->latency_ms[0]);
  }
  double cycle_ms = shortest_ms;
  while (cycle_ms < longest_ms) {
    fill_for(cycle_ms, free_mb);
    cycle_ms *= kNextCycle;
  }
}

void GpuletChooser::fill_for(double duty_cycle_ms, double free_mb) {
  order_.clear();
  for (std::uint32_t index = 0; index < items_.size(); ++index) {
    const Item& item = items_[index];
    if (item.rate / item.row->processes * duty_cycle_ms / 1000 > item.row->largest + 1) continue;
    const std::uint32_t batch =
        batch_of_round({item.row, item.rate, item.slo_ms, item.model}, duty_cycle_ms);
    if (batch > item.row->largest) continue;
    const double latency_ms = item.row->latency_ms[batch - 1];
    if (latency_ms > duty_cycle_ms || latency_ms + duty_cycle_ms > item.slo_ms) continue;
    order_.emplace_back(-item.cost / latency_ms, index);
  }
  const std::size_t tried = std::min(order_.size(), kTriedPerCycle);
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(tried),
                    order_.end());
  order_.resize(tried);
  turns_.clear();
  Taken taken{0, 0, free_mb};
  for (const auto& [gain, index] : order_) take(items_[index], &taken);
  if (turns_.empty()) return;
  note(taken.value, nullptr);
  std::size_t parts = 0;
  for (const auto& [gain, index] : order_) {
    if (has_turn(items_[index].model)) continue;
    note_with_part(items_[index], taken);
    if (++parts == kPartsPerCycle) break;
  }
  turns_.clear();
}

void GpuletChooser::note_with_part(const Item& item, const Taken& taken) {
  if (item.memory_mb > taken.free_mb || taken.share >= 1) return;
  work_ += turns_.size() + 1;
  double rate =
      turns_.empty() ? item.row->most_rate : most_rate_beside(turns_, *item.row, item.slo_ms);
  if (rate <= item.rate * kRoundingSlack) return;
  double value = taken.value + item.cost;
  if (rate >= item.rate * (1 - kRoundingSlack)) {
    if (items_.size() <= kFewItems) return;  // one of the sets that are tried anyway
    rate = item.rate;
  } else {
    // What stays behind costs less than nothing where it is served in larger batches later; the
    // choice is no better for it.
    value -= relaxation_->cost(item.model, item.rate - rate);
  }
  if (best_.size() == count_ && value <= best_.back().value) return;
  turns_.push_back({item.row, rate, item.slo_ms, item.model});
  const bool holds = least_duty_cycle_ms(turns_).has_value();
  turns_.pop_back();
  if (!holds) return;
  const Portion part{item.model, rate};
  note(value, &part);
}

void GpuletChooser::note(double value, const Portion* part) {
  if (best_.size() == count_ && value <= best_.back().value) return;
  GpuletChoice choice;
  choice.value = value;
  choice.portions.reserve(turns_.size() + 1);
  for (const Turn& turn : turns_) choice.portions.push_back({turn.model, turn.rate});
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

}  // namespace gpulet::schedule
