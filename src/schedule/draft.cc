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

Draft::Draft(Problem& problem) : problem_(&problem) {
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

double Draft::most_rate_of_new(std::uint32_t device, std::uint32_t size, std::size_t model) {
  const DraftDevice& host = devices_[device];
  const DeviceClass& device_class = class_of(device);
  if (host.partitions >= device_class.example->max_partitions ||
      device_class.sizes[size] > host.free_percent || !memory_fits(model, device)) {
    return 0;
  }
  if (!problem_->interferes(host.device_class)) {
    return problem_->row(model, host.device_class, size).most_rate;
  }
  std::vector<Occupant> together = occupants(device);
  const std::vector<Neighbour> beside = others_of(together, together.size());
  const double most = problem_->row_beside(model, host.device_class, size, beside).most_rate;
  if (most <= 0) return 0;
  together.push_back({std::nullopt, {size, {static_cast<std::uint32_t>(model)}}});
  return others_hold(host.device_class, together, together.size() - 1) ? most : 0;
}

std::size_t Draft::add_gpulet(std::uint32_t device, std::uint32_t size, std::size_t model,
                              double rate) {
  DraftDevice& host = devices_[device];
  const std::size_t index = gpulets_.size();
  DraftGpulet& gpulet = gpulets_.emplace_back();
  gpulet.device = device;
  gpulet.size = size;
  link(index);
  gpulet.turns.push_back(turn(model, row(model, gpulet), rate));
  refresh(device);
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

bool Draft::may_join(const std::vector<Turn>& turns, std::size_t model) const {
  const auto alone = [this](std::size_t one) { return problem_->models()[one]->alone; };
  return std::all_of(turns.begin(), turns.end(), [&](const Turn& turn) {
    return turn.model == model || (!alone(turn.model) && !alone(model));
  });
}

bool Draft::fits(std::size_t gpulet, std::size_t model, double rate) {
  DraftGpulet& host = gpulets_[gpulet];
  if (!may_join(host.turns, model)) return false;
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
  return holds && neighbours_bear(gpulet, model, host.size);
}

double Draft::most_rate(std::size_t gpulet, std::size_t model) {
  const DraftGpulet& host = gpulets_[gpulet];
  if (!may_join(host.turns, model)) return 0;
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
    refresh(gpulet.device);
  }
}

bool Draft::absorbs(const Spot& spot, std::size_t model, double rate, std::size_t gpulet) {
  const DraftGpulet& moving = gpulets_[gpulet];
  if (!may_join(moving.turns, model)) return false;
  std::vector<Neighbour> beside;
  std::vector<Occupant> together;
  if (spot.device && problem_->interferes(spot.device_class)) {
    together = occupants(*spot.device);
    std::erase_if(together, [&](const Occupant& there) { return there.gpulet == gpulet; });
    beside = others_of(together, together.size());
  }
  const auto row_there = [&](std::size_t of) -> const Row& {
    return problem_->row_beside(of, spot.device_class, spot.size, beside);
  };
  scratch_ = moving.turns;
  for (Turn& moved : scratch_) moved.row = &row_there(moved.model);
  schedule::join(&scratch_, turn(model, row_there(model), rate));
  if (load_of(scratch_) > kFullLoad || !memory_absorbs(spot, gpulet)) return false;
  if (!least_duty_cycle_ms(scratch_)) return false;
  if (together.empty()) return true;
  Occupant newcomer{std::nullopt, {spot.size, {}}};
  for (const Turn& turn : scratch_) newcomer.felt.models.push_back(turn.model);
  together.push_back(std::move(newcomer));
  return others_hold(static_cast<std::uint32_t>(spot.device_class), together, together.size() - 1);
}

// REQUIRES: scratch_ holds what the new gpulet would.
bool Draft::memory_absorbs(const Spot& spot, std::size_t gpulet) const {
  const double limit_mb = problem_->classes()[spot.device_class].example->memory_mb;
  if (limit_mb == 0) return true;
  double memory_mb = spot.device ? devices_[*spot.device].memory_mb : 0;
  for (const Turn& turn : scratch_) {
    memory_mb += problem_->on_class(turn.model, spot.device_class).memory_mb;
  }
  if (spot.device == gpulets_[gpulet].device) {
    // What moves within the device is loaded there already.
    for (const Turn& turn : gpulets_[gpulet].turns) {
      memory_mb -= problem_->on_class(turn.model, spot.device_class).memory_mb;
    }
  }
  return memory_mb <= limit_mb;
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
  unlink(from);
  refresh(left.device);
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
    if (gpulet.turns.empty() || spare == 0 || class_of(gpulet.device).example->mig) continue;
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
  const std::uint32_t before = grown.size;
  std::uint32_t best_size = before;
  for (std::uint32_t size = before + 1; size < sizes.size() && sizes[size] <= most; ++size) {
    grown.size = size;
    scratch_ = grown.turns;
    for (Turn& turn : scratch_) turn.row = &row(turn.model, grown);
    grown.size = before;
    const std::optional<Cycle> cycle = tight_cycle(scratch_);
    if (!cycle || cycle->deviations <= best->deviations) continue;
    if (!neighbours_bear(gpulet, std::nullopt, size)) continue;
    best = cycle;
    best_size = size;
  }
  device.free_percent = most - sizes[best_size];
  grown.size = best_size;
  for (Turn& turn : grown.turns) turn.row = &row(turn.model, grown);
  grown.load = load_of(grown.turns);
  refresh(grown.device);
  update_roomy(grown.device);
}

const Row& Draft::row_beside(std::size_t model, const DraftGpulet& gpulet) const {
  std::vector<Neighbour> beside;
  for (const Occupant& there : occupants(gpulet.device)) {
    if (&gpulets_[*there.gpulet] != &gpulet) beside.push_back(there.felt);
  }
  return problem_->row_beside(model, devices_[gpulet.device].device_class, gpulet.size, beside);
}

std::vector<Draft::Occupant> Draft::occupants(std::uint32_t device) const {
  std::vector<Occupant> together;
  for (std::optional<std::uint32_t> at = devices_[device].first; at; at = gpulets_[*at].next) {
    const DraftGpulet& gpulet = gpulets_[*at];
    Occupant& there = together.emplace_back();
    there.gpulet = *at;
    there.felt.size = gpulet.size;
    for (const Turn& turn : gpulet.turns) there.felt.models.push_back(turn.model);
  }
  return together;
}

std::vector<Neighbour> Draft::others_of(const std::vector<Occupant>& occupants, std::size_t at) {
  std::vector<Neighbour> others;
  for (std::size_t index = 0; index < occupants.size(); ++index) {
    if (index != at) others.push_back(occupants[index].felt);
  }
  return others;
}

bool Draft::others_hold(std::uint32_t device_class, const std::vector<Occupant>& occupants,
                        std::size_t changed) {
  std::vector<Turn> turns;
  for (std::size_t index = 0; index < occupants.size(); ++index) {
    if (index == changed) continue;
    const std::vector<Neighbour> beside = others_of(occupants, index);
    turns = gpulets_[*occupants[index].gpulet].turns;
    for (Turn& turn : turns) {
      turn.row =
          &problem_->row_beside(turn.model, device_class, occupants[index].felt.size, beside);
    }
    if (!least_duty_cycle_ms(turns)) return false;
  }
  return true;
}

bool Draft::neighbours_bear(std::size_t gpulet, std::optional<std::size_t> model,
                            std::uint32_t size) {
  const std::uint32_t device = gpulets_[gpulet].device;
  const std::uint32_t device_class = devices_[device].device_class;
  if (!problem_->interferes(device_class) || devices_[device].partitions < 2) return true;
  std::vector<Occupant> together = occupants(device);
  const auto changed = std::find_if(together.begin(), together.end(),
                                    [&](const Occupant& there) { return there.gpulet == gpulet; });
  changed->felt.size = size;
  if (model) {
    std::vector<std::uint32_t>& models = changed->felt.models;
    const auto newcomer = static_cast<std::uint32_t>(*model);
    models.insert(std::lower_bound(models.begin(), models.end(), newcomer), newcomer);
  }
  return others_hold(device_class, together, static_cast<std::size_t>(changed - together.begin()));
}

void Draft::link(std::size_t gpulet) {
  DraftGpulet& linked = gpulets_[gpulet];
  linked.next = devices_[linked.device].first;
  devices_[linked.device].first = static_cast<std::uint32_t>(gpulet);
}

void Draft::unlink(std::size_t gpulet) {
  std::optional<std::uint32_t>* at = &devices_[gpulets_[gpulet].device].first;
  while (*at != static_cast<std::uint32_t>(gpulet)) at = &gpulets_[**at].next;
  *at = gpulets_[gpulet].next;
}

void Draft::refresh(std::uint32_t device) {
  if (!problem_->interferes(devices_[device].device_class)) return;
  for (std::optional<std::uint32_t> at = devices_[device].first; at; at = gpulets_[*at].next) {
    DraftGpulet& gpulet = gpulets_[*at];
    for (Turn& turn : gpulet.turns) turn.row = &row_beside(turn.model, gpulet);
    gpulet.load = load_of(gpulet.turns);
  }
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
