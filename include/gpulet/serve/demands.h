// Demands: from observed arrivals to what the scheduler is asked for, with hysteresis, so that
// noise moves nothing.
//
// A model's configured rate holds until its first request came; from then on its rate is measured,
// twice: a fast estimate finds a load that grows, a slow one a load that has gone for good. A plan
// is asked for the measured rate and some growth; it stands until a rate leaves it by more than
// chance explains. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/serve/rate_monitor.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

struct DemandOptions {
  Duration time_constant = std::chrono::seconds(2);        // of the fast estimate
  Duration slow_time_constant = std::chrono::seconds(20);  // of the slow one
  // Standard deviations of a Poisson process that count as chance. An estimate is asked often: at
  // four it strays so far once in a day.
  double deviations = 4;
  // Planned above what is measured: what the load may grow by until the next plan is in force. Room
  // for chance is the plan's own (schedule::Headroom).
  double growth = 0.10;
  double give_back_below = 0.6;  // of the planned rate: only then is a plan made smaller
  double make_room_below = 0.9;  // the same where the plan leaves demand unserved
  double least_rate = 1.0;       // what a configured model keeps without traffic, per second
};

class Demands {
 public:
  Demands(const std::vector<ServedModel>& models, const DemandOptions& options);

  void arrived(std::size_t model);
  void tick(Time now);

  [[nodiscard]] double rate_seen(std::size_t model) const { return models_[model].fast.rate(); }
  [[nodiscard]] double rate_planned(std::size_t model) const { return models_[model].planned_rate; }

  // Some model gets more than the plan covers, by more than chance explains: act now. Which one, in
  // words; empty: none.
  [[nodiscard]] std::string above_plan() const;
  // Some model has left its band downwards: worth a new plan when the period has come. Which one,
  // in words; empty: none.
  [[nodiscard]] std::string below_plan() const;

  // What to plan for: what was planned, where the rate is inside its band, and the new need
  // elsewhere. Where the plan in force does not serve everything, what one model holds too much
  // others lack: then the band downwards is narrow.
  [[nodiscard]] std::vector<schedule::ModelDemand> next(bool all_served) const;
  // A plan for these demands was asked for.
  void planned(const std::vector<schedule::ModelDemand>& demands);

 private:
  struct Model {
    ServedModel served;
    RateMonitor fast;
    RateMonitor slow;
    bool seen = false;  // had a request: its rate is measured
    double planned_rate = 0;
  };
  [[nodiscard]] double needed(const Model& model, double rate) const;
  [[nodiscard]] static std::string told(const Model& model);
  [[nodiscard]] bool above(const Model& model) const;
  [[nodiscard]] bool below(const Model& model, double part_of_planned) const;

  DemandOptions options_;
  std::vector<Model> models_;
};

}  // namespace gpulet::serve
