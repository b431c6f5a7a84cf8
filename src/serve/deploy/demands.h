// Demands: derives the demand that the scheduler plans for from arrivals, with hysteresis.
//
// A model's configured rate holds until its first request. Then two estimates measure its rate: a
// fast one for a jump, a slow one for a lasting change. A plan is made for the measured rate plus
// some growth. It stands until a rate leaves it by more than chance explains. The more models there
// are, the more are far from their rates by chance at any time. So what counts as chance grows with
// their number, and the rate of false alarms does not. A model without a request for a while falls
// asleep: its demand is 0, and the next request wakes it. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_options.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

// An exponentially weighted estimate of one model's arrival rate. After a restart it is the mean
// since then, until it has as many arrivals as later.
class RateMonitor {
 public:
  // `initial_rate` (per second) holds until the first tick. Arrivals fade with `time_constant`.
  RateMonitor(double initial_rate, Duration time_constant)
      : rate_(initial_rate),
        constant_s_(to_seconds(time_constant)),
        window_s_(2 * to_seconds(time_constant)) {}

  // Begins the first interval.
  void start(Time now) { last_tick_ = now; }

  void arrived(std::uint64_t requests) { arrivals_ += requests; }
  // Sets the estimate.
  void expect(double rate) { rate_ = rate; }
  // Forgets the estimate.
  void restart() { window_s_ = 0; }
  // Continues with the estimate of `other`, which covers a shorter time.
  void restart_from(const RateMonitor& other) {
    rate_ = other.rate_;
    window_s_ = other.window_s_;
  }

  // Closes the interval since the last call (or since start()) and updates the estimate.
  void tick(Time now);

  [[nodiscard]] double rate() const { return rate_; }

  // How far above or below the rate of a Poisson process this estimate is with a probability of at
  // most e^-`surprise`, per second. Source: Bernstein's inequality, as in Boucheron, Lugosi,
  // Massart, "Concentration Inequalities" (2013), section 2.8.
  [[nodiscard]] double chance_above(double rate, double surprise) const;
  [[nodiscard]] double chance_below(double rate, double surprise) const;

 private:
  double rate_;
  double constant_s_;
  double window_s_;  // the estimate varies like a mean over so long a time
  Time last_tick_{};
  std::uint64_t arrivals_ = 0;
};

class Demands {
 public:
  // The models get the indices 0, 1, ... A model without a configured rate starts asleep.
  Demands(const std::vector<ServedModel>& models, const DemandOptions& options);

  // Returns the model's index. Indices of removed models are reused.
  std::size_t add(const ServedModel& model, Time now);
  // Its rate, SLO or largest batch changed.
  void change(std::size_t model, const ServedModel& changed, Time now);
  void remove(std::size_t model);

  // A previous run of the frontend planned the model at this rate, from its measurements.
  void adopt(std::size_t model, double planned_rate, Time now);

  void arrived(std::size_t model, std::uint64_t requests = 1) { awaken(model, requests); }
  // Wakes the model without counting a request.
  void wake(std::size_t model) { awaken(model, 0); }
  void tick(Time now);

  [[nodiscard]] double rate_seen(std::size_t model) const { return models_[model].fast.rate(); }
  [[nodiscard]] double rate_planned(std::size_t model) const { return models_[model].planned_rate; }

  [[nodiscard]] bool asleep(std::size_t model) const { return models_[model].asleep; }

  // A model whose rate left its planned band.
  struct Deviation {
    std::string model;
    std::string why;  // names the model and both rates
  };
  // A model that gets more than the plan covers, by more than chance explains: plan now. The fast
  // estimate tells a jump, the slow one a smaller lasting rise.
  [[nodiscard]] std::optional<Deviation> above_plan() const;
  // A model that left its band downwards: plan at the end of the period. `roomy`: nothing is gained
  // by an earlier plan. Otherwise the band is narrow and the fast estimate counts.
  [[nodiscard]] std::optional<Deviation> below_plan(bool roomy) const;

  // The demands to plan for: the planned rate of models inside their band, the new need of others.
  [[nodiscard]] std::vector<schedule::ModelDemand> next(bool roomy) const;
  // A plan for these demands was requested.
  void planned(const std::vector<schedule::ModelDemand>& demands);

 private:
  struct Model {
    ServedModel served;
    RateMonitor fast;
    RateMonitor slow;
    bool seen = false;    // had a request, or slept: its rate is measured
    bool asleep = false;  // no request for long, or none so far and none expected
    bool active = true;   // had a request since the last tick
    Time last_active{};
    double planned_rate = 0;
  };
  [[nodiscard]] Model made(const ServedModel& model) const;
  void awaken(std::size_t model, std::uint64_t requests);
  void fall_asleep(Model& model, Time now) const;
  [[nodiscard]] double needed(const Model& model, double rate) const;
  [[nodiscard]] static std::string describe(const Model& model);
  [[nodiscard]] bool above(const Model& model) const;
  [[nodiscard]] bool below(const Model& model, bool roomy) const;
  [[nodiscard]] static double lasting_rate(const Model& model, bool roomy);
  [[nodiscard]] double rate_to_plan(const Model& model, bool roomy) const;
  void find_surprise();

  DemandOptions options_;
  std::vector<Model> models_;
  // The negative logarithm of the probability that one comparison of a rate is a false alarm.
  double surprise_ = 0;
  std::vector<std::size_t> removed_;  // indices to reuse
};

}  // namespace gpulet::serve
