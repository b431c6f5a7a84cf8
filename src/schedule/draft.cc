#include "schedule/draft.h"

#include <algorithm>

namespace gpulet::schedule {
namespace {

constexpr double kFullLoad = 1 + kRoundingSlack;

double load_of(const Turn& turn) { return turn.rate * turn.row->least_ms / 1000; }

std::vector<Turn>::iterator place_of(std::vector<Turn>& turns, std::size_t model) {
  return std::lower_bound(turns.begin(), turns.end(), model,
                          [](const Turn& turn, std::size_t wanted) { return turn.model < wanted; });
}

// A model that is there already gets the rate on top: it never takes two turns in one round. Turns
// stay in order, so that a round adds up to the same sum, bit by bit, however it came about.
void join(std::vector<Turn>* turns, const Turn& newcomer) {
  const auto place = place_of(*turns, newcomer.model);
  if (place != turns->end() && place->model == newcomer.model) {
    place->rate += newcomer.rate;
  } else {
    turns->insert(place, newcomer);
  }
}

}  // namespace

double load_of(const std::vector<Turn>& turns) {
  double load = 0;
  for (const Turn& turn : turns) load += load_of(turn);
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

Draft::Draft(const Problem& problem) : problem_(&problem) {
  for (const DeviceClass& device_class : problem.classes()) {
    unopened_.push_back(device_class.devices.size());
  }
  for (const ModelDemand* demand : problem.models()) left_.push_back(demand->rate);
  gpulets_.reserve(std::min(problem.models().size(), problem.devices().size()) * 2);
  devices_.reserve(std::min(problem.models().size(), problem.devices().size()));
}

Turn Draft::turn(std::size_t model, const Row& row, double rate) const {
  return {&row, rate, problem_->models()[model]->slo_ms, static_cast<std::uint32_t>(model)};
}

std::uint32_t Draft::open(std::size_t device_class) {
  --unopened_[device_class];
  ++used_;
  DraftDevice device;
  device.device_class = static_cast<std::uint32_t>(device_class);
  devices_.push_back(device);
  return static_cast<std::uint32_t>(devices_.size() - 1);
}

bool Draft::memory_fits(std::size_t model, std::uint32_t device) const {
  const double limit_mb = class_of(device).example->memory_mb;
  return limit_mb == 0 || devices_[device].memory_mb + memory_of(model, device) <= limit_mb;
}

bool Draft::memory_fits_empty(std::size_t model, std::size_t device_class) const {
  const double limit_mb = problem_->classes()[device_class].example->memory_mb;
  return limit_mb == 0 || problem_->on_class(model, device_class).memory_mb <= limit_mb;
}

std::size_t Draft::add_gpulet(std::uint32_t device, std::uint32_t size, std::size_t model,
                              double rate) {
  DraftDevice& host = devices_[device];
  const std::size_t index = gpulets_.size();
  DraftGpulet& gpulet = gpulets_.emplace_back();
  gpulet.device = device;
  gpulet.size = size;
  gpulet.turns.push_back(turn(model, row(model, gpulet), rate));
  gpulet.load = load_of(gpulet.turns);
  host.free_percent -= percent(gpulet);
  ++host.partitions;
  host.memory_mb += memory_of(model, device);
  update_roomy(device);
  take(model, rate);
  return index;
}

void Draft::take(std::size_t model, double rate) {
  left_[model] -= rate;
  if (left_[model] <= kRoundingSlack * problem_->models()[model]->rate) left_[model] = 0;
}

double Draft::left_of_all() const {
  double sum = 0;
  for (std::size_t model = 0; model < left_.size(); ++model) {
    sum += left_[model] / problem_->models()[model]->rate;
  }
  return sum;
}

bool Draft::fits(std::size_t gpulet, std::size_t model, double rate) {
  DraftGpulet& host = gpulets_[gpulet];
  const Row& own = row(model, host);
  if (own.largest == 0 || host.load + rate * own.least_ms / 1000 > kFullLoad) return false;
  const auto place = place_of(host.turns, model);
  if (place != host.turns.end() && place->model == model) {
    const double before = place->rate;
    place->rate += rate;
    const bool holds = least_duty_cycle_ms(host.turns).has_value();
    place->rate = before;
    return holds;
  }
  if (!memory_fits(model, host.device)) return false;
  const auto tried = host.turns.insert(place, turn(model, own, rate));
  const bool holds = least_duty_cycle_ms(host.turns).has_value();
  host.turns.erase(tried);
  return holds;
}

double Draft::most_rate(std::size_t gpulet, std::size_t model) {
  const DraftGpulet& host = gpulets_[gpulet];
  const Row& own = row(model, host);
  if (own.largest == 0 || host.load >= 1) return 0;
  scratch_ = host.turns;
  double there_already = 0;
  const auto place = place_of(scratch_, model);
  if (place != scratch_.end() && place->model == model) {
    there_already = place->rate;
    scratch_.erase(place);
  } else if (!memory_fits(model, host.device)) {
    return 0;
  }
  const double slo_ms = problem_->models()[model]->slo_ms;
  const double most = most_rate_beside(scratch_, own, slo_ms) - there_already;
  return most > 0 && fits(gpulet, model, most) ? most : 0;
}

std::optional<Draft::Room> Draft::most_room(std::size_t model) {
  std::optional<Room> most;
  for (std::size_t index = 0; index < gpulets_.size(); ++index) {
    const DraftGpulet& gpulet = gpulets_[index];
    if (gpulet.turns.empty()) continue;
    const double enough = most ? most->rate : kRoundingSlack * problem_->models()[model]->rate;
    // No round can do with less than least_ms a request.
    if ((kFullLoad - gpulet.load) * 1000 <= enough * row(model, gpulet).least_ms) continue;
    const double rate = most_rate(index, model);
    if (rate > enough) most = {index, rate};
  }
  return most;
}

void Draft::add(std::size_t gpulet, std::size_t model, double rate) {
  DraftGpulet& host = gpulets_[gpulet];
  join(host, turn(model, row(model, host), rate));
  take(model, rate);
}

void Draft::join(DraftGpulet& gpulet, const Turn& newcomer) {
  const std::size_t before = gpulet.turns.size();
  schedule::join(&gpulet.turns, newcomer);
  gpulet.load = load_of(gpulet.turns);
  if (gpulet.turns.size() > before) {
    devices_[gpulet.device].memory_mb += memory_of(newcomer.model, gpulet.device);
  }
}

void Draft::turns_at(std::size_t gpulet, std::size_t device_class, std::uint32_t size,
                     const Turn& newcomer, std::vector<Turn>* turns) const {
  *turns = gpulets_[gpulet].turns;
  for (Turn& moved : *turns) moved.row = &problem_->row(moved.model, device_class, size);
  schedule::join(turns, newcomer);
}

void Draft::absorb(std::size_t into, std::size_t from) {
  DraftGpulet& left = gpulets_[from];
  DraftDevice& device = devices_[left.device];
  for (const Turn& moved : left.turns) {
    device.memory_mb -= memory_of(moved.model, left.device);
    join(gpulets_[into], turn(moved.model, row(moved.model, gpulets_[into]), moved.rate));
  }
  left.turns.clear();
  left.load = 0;
  device.free_percent += percent(left);
  if (--device.partitions == 0) {
    ++unopened_[device.device_class];
    --used_;
  }
  update_roomy(left.device);
}

void Draft::use_spare_share() {
  std::vector<std::pair<double, std::size_t>> tight;
  for (std::size_t index = 0; index < gpulets_.size(); ++index) {
    const DraftGpulet& gpulet = gpulets_[index];
    const int spare = devices_[gpulet.device].free_percent;
    if (gpulet.turns.empty() || spare == 0) continue;
    const std::optional<Cycle> cycle = tight_cycle(gpulet.turns);
    if (cycle && cycle->deviations < kMostDeviations) tight.emplace_back(cycle->deviations, index);
  }
  std::sort(tight.begin(), tight.end());
  for (const auto& [deviations, index] : tight) grow(index);
}

void Draft::grow(std::size_t gpulet) {
  DraftGpulet& grown = gpulets_[gpulet];
  DraftDevice& device = devices_[grown.device];
  const std::vector<int>& sizes = class_of(grown.device).sizes;
  const int most = percent(grown) + device.free_percent;
  std::optional<Cycle> best = tight_cycle(grown.turns);
  std::uint32_t best_size = grown.size;
  const auto turns_of_size = [&](std::uint32_t size) {
    scratch_ = grown.turns;
    for (Turn& turn : scratch_) turn.row = &problem_->row(turn.model, device.device_class, size);
  };
  for (std::uint32_t size = grown.size + 1; size < sizes.size() && sizes[size] <= most; ++size) {
    turns_of_size(size);
    const std::optional<Cycle> cycle = tight_cycle(scratch_);
    if (!cycle || cycle->deviations <= best->deviations) continue;
    best = cycle;
    best_size = size;
  }
  turns_of_size(best_size);
  device.free_percent = most - sizes[best_size];
  grown.size = best_size;
  grown.turns = scratch_;
  grown.load = load_of(grown.turns);
  update_roomy(grown.device);
}

void Draft::update_roomy(std::uint32_t device) {
  DraftDevice& changed = devices_[device];
  const bool roomy =
      changed.partitions > 0 &&
      size_taken(class_of(device), changed.free_percent, changed.partitions, 0).has_value();
  if (roomy && !changed.roomy) {
    changed.roomy = roomy_.size();
    roomy_.push_back(device);
  } else if (!roomy && changed.roomy) {
    devices_[roomy_.back()].roomy = changed.roomy;
    roomy_[*changed.roomy] = roomy_.back();
    roomy_.pop_back();
    changed.roomy.reset();
  }
}

}  // namespace gpulet::schedule
