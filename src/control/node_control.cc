#include "gpulet/control/node_control.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpulet::control {

unsigned window_periods(const Options& options) {
  const Duration window = options.window.value_or(options.period);
  const auto periods = (window + options.period - Duration(1)) / options.period;
  return static_cast<unsigned>(std::max<std::int64_t>(periods, 1));
}

PiController::PiController(PiGains gains, CoreBounds bounds, double cores)
    : gains_(gains), bounds_(bounds), cores_(cores) {}

double PiController::gain_cores_per_s() const {
  if (gains_.at_cores <= 0) return gains_.gain_cores_per_s;
  return gains_.gain_cores_per_s * cores_ / gains_.at_cores;
}

double PiController::request(double error_s) {
  const double change = gain_cores_per_s() * (error_s - gains_.zero * last_error_s_);
  last_error_s_ = error_s;
  return std::clamp(cores_ + change, bounds_.least, bounds_.most);
}

Granted grant(const std::vector<double>& requested, double available, double surplus) {
  const double demand = std::accumulate(requested.begin(), requested.end(), 0.0);
  if (demand <= 0) return Granted{requested, 0};
  const double contention = available / demand;
  const double scale = contention < 1 ? contention : 1 + surplus * (contention - 1);
  Granted granted{requested, contention};
  for (double& cores : granted.cores) cores *= scale;
  return granted;
}

namespace {

// The parts of the objective at which CoreRule::steps requests one core more or less. Source: ROMA,
// section 5, system RR+rules.
constexpr double kStepUpAt = 0.8;
constexpr double kStepDownAt = 0.2;

PiGains gains_of(const std::optional<Plant>& plant, const Options& options) {
  if (options.gains) return *options.gains;
  const Plant queue = plant_of_queue(to_seconds(options.period));
  const unsigned window = window_periods(options);
  Result<PiGains> gains = choose_gains(plant.value_or(queue), options.pole, window);
  if (!gains.ok()) gains = choose_gains(queue, options.pole, window);
  return gains.ok() ? gains.value() : PiGains{};
}

}  // namespace

NodeControl::NodeControl(const Options& options, double cores)
    : options_(options), node_cores_(cores) {}

double NodeControl::available() const {
  return std::max(node_cores_ - options_.gpu_cores, std::min(options_.least_cores, node_cores_));
}

CoreBounds NodeControl::bounds() const {
  return {std::min(options_.least_cores, available()), available()};
}

double NodeControl::equal_part(std::size_t instances) const {
  const double most = available();
  const double shared = options_.cores == CoreRule::least ? std::min(1.0, most) : most;
  return std::max(shared / static_cast<double>(instances), bounds().least);
}

void NodeControl::control(const std::vector<Instance>& instances) {
  const double part = equal_part(instances.size());
  std::map<GpuletId, Controlled> controlled;
  std::map<GpuletId, Cores> cores;
  for (const Instance& instance : instances) {
    const auto known = controlled_.find(instance.id);
    if (known != controlled_.end()) {
      controlled.emplace(instance.id, known->second);
      cores[instance.id] = cores_.at(instance.id);
    } else {
      const PiGains gains = gains_of(instance.plant, options_);
      controlled.emplace(instance.id, Controlled{PiController(gains, bounds(), part)});
      cores[instance.id] = {part, part};
    }
  }
  controlled_ = std::move(controlled);
  cores_ = std::move(cores);
}

double NodeControl::request_in_steps(Controlled& instance, const Reading& reading, bool due) const {
  if (reading.response_s > 0) {
    instance.response_s += reading.response_s;
    ++instance.responses;
  }
  double step = 0;
  if (due) {
    // Decides by the mean over all periods since the last decision.
    const double part_of_objective =
        instance.responses == 0 ? 0
                                : instance.response_s / instance.responses / reading.objective_s;
    instance.response_s = 0;
    instance.responses = 0;
    step = part_of_objective >= kStepUpAt ? 1 : part_of_objective <= kStepDownAt ? -1 : 0;
  }
  const CoreBounds within = bounds();
  return std::clamp(instance.controller.cores() + step, within.least, within.most);
}

double NodeControl::request(Controlled& instance, const Reading& reading, bool steps_due) const {
  switch (options_.cores) {
    case CoreRule::feedback:
      return instance.controller.request(reading.response_s -
                                         options_.set_point * reading.objective_s);
    case CoreRule::steps:
      return request_in_steps(instance, reading, steps_due);
    case CoreRule::all:
    case CoreRule::least:
      break;
  }
  return equal_part(controlled_.size());
}

bool NodeControl::steps_due(Time now) {
  if (!steps_at_) steps_at_ = now - options_.period + options_.steps_period;
  if (now < *steps_at_) return false;
  *steps_at_ = now + options_.steps_period;
  return true;
}

void NodeControl::step(const std::map<GpuletId, Reading>& readings, Time now) {
  const bool due = options_.cores == CoreRule::steps && steps_due(now);
  std::vector<GpuletId> alive;
  std::vector<double> requested;
  for (auto& [id, instance] : controlled_) {
    cores_[id] = {};
    const auto reading = readings.find(id);
    if (reading == readings.end() || !reading->second.alive) continue;
    alive.push_back(id);
    requested.push_back(request(instance, reading->second, due));
  }
  const Granted granted = grant(requested, available(), options_.surplus);
  contention_ = granted.contention;
  for (std::size_t at = 0; at < alive.size(); ++at) {
    controlled_.at(alive[at]).controller.set_granted(granted.cores[at]);
    cores_[alive[at]] = {requested[at], granted.cores[at]};
  }
}

}  // namespace gpulet::control
