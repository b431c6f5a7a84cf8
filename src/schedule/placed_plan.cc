#include "schedule/placed_plan.h"

#include <algorithm>

#include "schedule/planned_gpulet.h"

namespace gpulet::schedule {
namespace {

// Whether everybody but one seat has a rate no lower than before.
bool nobody_loses(const std::vector<DeviceRounds::Seat>& seats, const std::vector<double>& before,
                  std::size_t but) {
  for (std::size_t seat = 0; seat < seats.size(); ++seat) {
    if (seat != but && seats[seat].turn.rate < before[seat] * (1 - kRoundingSlack)) return false;
  }
  return true;
}

}  // namespace

const char* TakenDevices::take(const PlacedGpulet& gpulet) {
  const Device& device = *problem_->devices()[gpulet.device];
  const DeviceClass& device_class = problem_->classes()[gpulet.device_class];
  const auto found = taken_.find(gpulet.device);
  if (found == taken_.end() && taken_.size() >= problem_->device_budget())
    return "is one more than may be used (max_devices)";
  Taken taken = found == taken_.end() ? Taken{} : found->second;
  taken.partitions += 1;
  taken.percent += device_class.sizes[gpulet.size];
  for (const PlacedTurn& turn : gpulet.turns)
    taken.memory_mb += problem_->on_class(turn.model, gpulet.device_class).memory_mb;
  if (taken.partitions > device.max_partitions) return "has no partition left";
  if (taken.percent > kWholeDevice.percent) return "has too little share left";
  if (device.memory_mb > 0 && taken.memory_mb > device.memory_mb)
    return "has too little memory left";
  taken_[gpulet.device] = taken;
  return nullptr;
}

void put_in_order(const Problem& problem, std::vector<PlacedGpulet>* gpulets) {
  const auto size_of = [&](const PlacedGpulet& gpulet) {
    return problem.classes()[gpulet.device_class].sizes[gpulet.size];
  };
  const auto by_model = [](const PlacedTurn& a, const PlacedTurn& b) { return a.model < b.model; };
  std::stable_sort(gpulets->begin(), gpulets->end(),
                   [&](const PlacedGpulet& a, const PlacedGpulet& b) {
                     if (a.device != b.device) return a.device < b.device;
                     if (size_of(a) != size_of(b)) return size_of(a) > size_of(b);
                     return std::lexicographical_compare(a.turns.begin(), a.turns.end(),
                                                         b.turns.begin(), b.turns.end(), by_model);
                   });
}

PlacedPlan::PlacedPlan(const Problem& problem, SlowdownTables& tables,
                       std::vector<PlacedGpulet> gpulets)
    : problem_(&problem), gpulets_(std::move(gpulets)) {
  put_in_order(problem, &gpulets_);
  for (std::size_t first = 0; first < gpulets_.size();) {
    std::size_t behind = first + 1;
    while (behind < gpulets_.size() && gpulets_[behind].device == gpulets_[first].device) ++behind;
    first_gpulet_.push_back(first);
    devices_.emplace_back(problem, tables, std::span(gpulets_).subspan(first, behind - first));
    first = behind;
  }
  first_gpulet_.push_back(gpulets_.size());
}

void PlacedPlan::settle() {
  for (DeviceRounds& device : devices_) device.settle();
}

void PlacedPlan::grow() {
  for (DeviceRounds& device : devices_) device.grow();
}

void PlacedPlan::share_out() {
  std::vector<double> without_place = left();
  std::vector<std::vector<SeatAt>> seats_of(without_place.size());
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    const std::vector<DeviceRounds::Seat>& seats = devices_[device].seats();
    for (std::size_t seat = 0; seat < seats.size(); ++seat)
      seats_of[seats[seat].turn.model].push_back({device, seat});
  }
  for (std::size_t model = 0; model < without_place.size(); ++model) {
    if (seats_of[model].size() < 2) continue;
    for (const SeatAt& at : seats_of[model]) {
      if (without_place[model] <= 0) break;
      without_place[model] -= take_more(at, without_place[model]);
    }
  }
  // What is wanted is now what is held: nobody's rate depends any more on who came first.
  for (DeviceRounds& device : devices_) {
    for (std::size_t seat = 0; seat < device.seats().size(); ++seat)
      device.want(seat, device.seats()[seat].turn.rate);
    device.settle();
  }
}

double PlacedPlan::take_more(const SeatAt& at, double left) {
  DeviceRounds& device = devices_[at.device];
  std::vector<double> before;
  before.reserve(device.seats().size());
  for (const DeviceRounds::Seat& seat : device.seats()) before.push_back(seat.turn.rate);
  device.want(at.seat, before[at.seat] + left);
  device.settle();
  const double gained = device.seats()[at.seat].turn.rate - before[at.seat];
  if (gained > 0 && nobody_loses(device.seats(), before, at.seat)) return gained;
  device.want(at.seat, before[at.seat]);
  device.settle();
  return 0;
}

std::vector<double> PlacedPlan::left() const {
  std::vector<double> left;
  left.reserve(problem_->models().size());
  for (const ModelDemand* demand : problem_->models()) left.push_back(demand->rate);
  for (const DeviceRounds& device : devices_) {
    for (const DeviceRounds::Seat& seat : device.seats()) left[seat.turn.model] -= seat.turn.rate;
  }
  for (std::size_t model = 0; model < left.size(); ++model) {
    if (left[model] <= kRoundingSlack * problem_->models()[model]->rate) left[model] = 0;
  }
  return left;
}

std::vector<PlannedGpulet> PlacedPlan::planned() const {
  std::vector<PlannedGpulet> planned;
  planned.reserve(gpulets_.size());
  const PlacedGpulet* last = nullptr;  // whose assignments come
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (const DeviceRounds::Seat& seat : devices_[device].seats()) {
      if (seat.turn.rate <= 0) continue;
      const PlacedGpulet& placed = gpulets_[first_gpulet_[device] + seat.gpulet];
      if (&placed != last) {
        PlannedGpulet& added = planned.emplace_back();
        added.device = problem_->devices()[placed.device]->key;
        added.size = Share{problem_->classes()[placed.device_class].sizes[placed.size]};
        added.duty_cycle_ms = devices_[device].round_ms(seat.gpulet);
        last = &placed;
      }
      planned.back().assignments.push_back(
          assignment_of(*problem_, placed.device_class, placed.size, seat.turn, seat.batch));
    }
  }
  if (problem_->input().current != nullptr) repeat_what_runs(*problem_->input().current, planned);
  return planned;
}

}  // namespace gpulet::schedule
