#include "serve/deploy/demands.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "serve/values/event_log.h"

namespace gpulet::serve {

void RateMonitor::tick(Time now) {
  const double interval_s = to_seconds(now - last_tick_);
  last_tick_ = now;
  const auto arrivals = static_cast<double>(arrivals_);
  arrivals_ = 0;
  if (interval_s <= 0) return;
  const double weight =
      std::max(1 - std::exp(-interval_s / constant_s_), interval_s / (window_s_ + interval_s));
  rate_ += weight * (arrivals / interval_s - rate_);
  // An exponential window of constant T has the variance of 2 T of arrivals.
  window_s_ = std::min(window_s_ + interval_s, 2 * constant_s_);
}

// One arrival raises the estimate by up to 1 / T, so at low rates a few of them are far more than
// the variance tells.
double RateMonitor::chance_above(double rate, double surprise) const {
  const double one_arrival = 1 / std::min(window_s_, constant_s_);
  return chance_below(rate, surprise) + surprise * one_arrival / 3;
}

double RateMonitor::chance_below(double rate, double surprise) const {
  return std::sqrt(2 * surprise * rate / window_s_);
}

Demands::Demands(const std::vector<ServedModel>& models, const DemandOptions& options)
    : options_(options) {
  for (const ServedModel& model : models) models_.push_back(made(model));
  find_surprise();
}

Demands::Model Demands::made(const ServedModel& model) const {
  Model entry{model, RateMonitor(model.configured_rate, options_.time_constant),
              RateMonitor(model.configured_rate, options_.slow_time_constant)};
  entry.asleep = model.configured_rate <= 0;
  return entry;
}

std::size_t Demands::add(const ServedModel& model, Time now) {
  if (removed_.empty()) {
    removed_.push_back(models_.size());
    models_.push_back(made(model));
  }
  const std::size_t index = removed_.back();
  removed_.pop_back();
  models_[index] = made(model);
  models_[index].fast.start(now);
  models_[index].slow.start(now);
  return index;
}

void Demands::change(std::size_t model, const ServedModel& changed, Time now) {
  Model& entry = models_[model];
  const bool expected_anew = !entry.seen && entry.served.configured_rate != changed.configured_rate;
  entry.served = changed;
  if (!expected_anew) return;
  const double planned = entry.planned_rate;
  entry = made(changed);
  entry.planned_rate = planned;
  entry.fast.start(now);
  entry.slow.start(now);
}

void Demands::remove(std::size_t model) {
  // Moved, because an assignment would keep the strings' memory.
  { const ServedModel forgotten = std::move(models_[model].served); }
  models_[model] = made(ServedModel());
  removed_.push_back(model);
}

void Demands::awaken(std::size_t model, std::uint64_t requests) {
  Model& entry = models_[model];
  if (std::exchange(entry.asleep, false)) {
    for (RateMonitor* const estimate : {&entry.fast, &entry.slow}) {
      // The configured rate is the best guess.
      estimate->expect(entry.served.configured_rate);
      if (entry.served.configured_rate <= 0) estimate->restart();
    }
  }
  entry.active = true;
  if (requests == 0) return;
  entry.seen = true;
  entry.fast.arrived(requests);
  entry.slow.arrived(requests);
}

// From now on the measured rate counts, not the configured one.
void Demands::fall_asleep(Model& model, Time now) const {
  model.asleep = true;
  model.seen = true;
  model.fast = RateMonitor(0, options_.time_constant);
  model.slow = RateMonitor(0, options_.slow_time_constant);
  model.fast.start(now);
  model.slow.start(now);
}

void Demands::adopt(std::size_t index, double planned_rate, Time now) {
  Model& model = models_[index];
  const double rate = planned_rate / (1 + options_.growth);
  model.fast = RateMonitor(rate, options_.time_constant);
  model.slow = RateMonitor(rate, options_.slow_time_constant);
  model.fast.start(now);
  model.slow.start(now);
  model.seen = true;
  model.asleep = false;
  model.active = true;
  model.planned_rate = planned_rate;
}

// Of all comparisons, one in `false_alarm_every` may be a false alarm.
void Demands::find_surprise() {
  constexpr double kComparisons = 3;  // of a model: above() with either estimate, and below()
  const auto awake = std::count_if(models_.begin(), models_.end(),
                                   [](const Model& model) { return !model.asleep; });
  const double ticks = to_seconds(options_.false_alarm_every) / to_seconds(options_.tick);
  surprise_ = std::log(std::max(1.0, kComparisons * static_cast<double>(awake) * ticks));
}

void Demands::tick(Time now) {
  for (Model& model : models_) {
    if (std::exchange(model.active, false)) model.last_active = now;
    const bool idle = options_.idle_after > Duration::zero() && !model.asleep &&
                      now - model.last_active >= options_.idle_after;
    if (idle) fall_asleep(model, now);
    // Before the first request the configured rate holds.
    if (model.seen) {
      model.fast.tick(now);
      model.slow.tick(now);
    } else {
      model.fast.start(now);
      model.slow.start(now);
    }
  }
  find_surprise();
}

double Demands::needed(const Model& model, double rate) const {
  if (model.asleep) return 0;
  const double configured = model.served.configured_rate;
  const double kept =
      configured > 0 ? std::min(configured, options_.least_rate) : options_.least_rate;
  // A lower rate is the tail of an estimate, not a demand.
  const double negligible = 0.01;
  return std::max(rate < negligible ? 0.0 : rate * (1 + options_.growth), kept);
}

std::string Demands::describe(const Model& model) {
  if (model.asleep) return model.served.name + " had no request for long";
  return model.served.name + " gets " + per_second(model.fast.rate()) + ", planned were " +
         per_second(model.planned_rate);
}

// A slow estimate is still high some time after a load has gone, so the fast one must agree.
bool Demands::above(const Model& model) const {
  const double planned = model.planned_rate;
  const auto exceeds = [&](const RateMonitor& estimate) {
    return estimate.rate() > planned + estimate.chance_above(planned, surprise_);
  };
  return exceeds(model.fast) || (model.fast.rate() > planned && exceeds(model.slow));
}

// A slow estimate decays for minutes, so only a large difference beyond chance counts.
bool Demands::below(const Model& model, bool roomy) const {
  const double planned = model.planned_rate;
  if (model.asleep) return planned > 0;
  const double band = roomy ? options_.give_back_below : options_.make_room_below;
  const RateMonitor& estimate = roomy ? model.slow : model.fast;
  const double rate = lasting_rate(model, roomy);
  return needed(model, rate) < band * planned &&
         rate < planned - estimate.chance_below(planned, surprise_);
}

double Demands::lasting_rate(const Model& model, bool roomy) {
  return roomy ? std::max(model.fast.rate(), model.slow.rate()) : model.fast.rate();
}

double Demands::rate_to_plan(const Model& model, bool roomy) const {
  const bool is_above = above(model);
  if (model.planned_rate > 0 && !is_above && !below(model, roomy)) return model.planned_rate;
  return needed(model, lasting_rate(model, roomy || is_above));
}

std::optional<Demands::Deviation> Demands::above_plan() const {
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [this](const Model& model) { return above(model); });
  if (found == models_.end()) return std::nullopt;
  return Deviation{found->served.name, describe(*found)};
}

std::optional<Demands::Deviation> Demands::below_plan(bool roomy) const {
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [&](const Model& model) { return below(model, roomy); });
  if (found == models_.end()) return std::nullopt;
  return Deviation{found->served.name, describe(*found)};
}

std::vector<schedule::ModelDemand> Demands::next(bool roomy) const {
  std::vector<schedule::ModelDemand> demands;
  for (const Model& model : models_) {
    const double rate = rate_to_plan(model, roomy);
    if (rate > 0) {
      demands.push_back({model.served.name, rate, model.served.slo_ms, model.served.max_batch});
    }
  }
  return demands;
}

void Demands::planned(const std::vector<schedule::ModelDemand>& demands) {
  std::unordered_map<std::string_view, double> rates;
  for (const schedule::ModelDemand& demand : demands) rates.try_emplace(demand.name, demand.rate);
  for (Model& model : models_) {
    const auto found = rates.find(model.served.name);
    const double rate = found == rates.end() ? 0 : found->second;
    // What the slow estimate knows of the time before a jump would hide for long that the plan was
    // made during the jump, for less than its end.
    const double known = model.slow.rate();
    if (rate > model.planned_rate &&
        model.fast.rate() > known + model.fast.chance_above(known, surprise_))
      model.slow.restart_from(model.fast);
    // After a fall that the fast estimate told, it would soon ask for the old rate again.
    const bool by_fast = rate < model.planned_rate && rate <= needed(model, model.fast.rate());
    if (by_fast && model.fast.rate() < known - model.fast.chance_below(known, surprise_))
      model.slow.restart_from(model.fast);
    model.planned_rate = rate;
  }
}

}  // namespace gpulet::serve
