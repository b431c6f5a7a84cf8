#include "gpulet/control/node_control.h"

#include <algorithm>
#include <utility>

#include "gpulet/control/identify.h"
#include "gpulet/control/supervisor.h"

namespace gpulet::control {
namespace {

// Of the objective, where CoreRule::steps takes a core more or gives one back. Source: ROMA,
// section 5, system RR+rules.
constexpr double kStepUpAt = 0.8;
constexpr double kStepDownAt = 0.2;

PiGains gains_of(const std::optional<Plant>& plant, const Options& options) {
  const Plant queue = plant_of_queue(to_seconds(options.period));
  Result<PiGains> gains = choose_gains(plant.value_or(queue), options.pole);
  if (!gains.ok()) gains = choose_gains(queue, options.pole);
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

double NodeControl::equal_part(std::size_t executables) const {
  const double most = available();
  const double shared = options_.cores == CoreRule::least ? std::min(1.0, most) : most;
  return std::max(shared / static_cast<double>(executables), bounds().least);
}

void NodeControl::control(const std::vector<Executable>& executables) {
  const double part = equal_part(executables.size());
  std::map<GpuletId, Controlled> controlled;
  std::map<GpuletId, Cores> cores;
  for (const Executable& executable : executables) {
    const auto known = controlled_.find(executable.id);
    if (known != controlled_.end()) {
      controlled.emplace(executable.id, known->second);
      cores[executable.id] = cores_.at(executable.id);
    } else {
      const PiGains gains = gains_of(executable.plant, options_);
      controlled.emplace(executable.id, Controlled{PiController(gains, bounds(), part)});
      cores[executable.id] = {part, part};
    }
  }
  controlled_ = std::move(controlled);
  cores_ = std::move(cores);
}

// By the mean over all periods since it looked last.
double NodeControl::step_of(Controlled& executable, double objective_s) {
  const double of_objective =
      executable.responses == 0 ? 0 : executable.response_s / executable.responses / objective_s;
  executable.response_s = 0;
  executable.responses = 0;
  return of_objective >= kStepUpAt ? 1 : of_objective <= kStepDownAt ? -1 : 0;
}

double NodeControl::ask_in_steps(Controlled& executable, const Reading& reading, bool due) const {
  if (reading.response_s > 0) {
    executable.response_s += reading.response_s;
    ++executable.responses;
  }
  const double step = due ? step_of(executable, reading.objective_s) : 0;
  const CoreBounds within = bounds();
  return std::clamp(executable.controller.cores() + step, within.least, within.most);
}

double NodeControl::ask(Controlled& executable, const Reading& reading, bool steps_due) const {
  switch (options_.cores) {
    case CoreRule::feedback:
      return executable.controller.ask(reading.response_s -
                                       options_.set_point * reading.objective_s);
    case CoreRule::steps:
      return ask_in_steps(executable, reading, steps_due);
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
  std::vector<double> asked;
  for (auto& [id, executable] : controlled_) {
    cores_[id] = {};
    const auto reading = readings.find(id);
    if (reading == readings.end() || !reading->second.alive) continue;
    alive.push_back(id);
    asked.push_back(ask(executable, reading->second, due));
  }
  const Granted granted = grant(asked, available(), options_.surplus);
  contention_ = granted.contention;
  for (std::size_t at = 0; at < alive.size(); ++at) {
    controlled_.at(alive[at]).controller.given(granted.cores[at]);
    cores_[alive[at]] = {asked[at], granted.cores[at]};
  }
}

}  // namespace gpulet::control
