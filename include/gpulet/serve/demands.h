// Demands: from observed arrivals to what the scheduler is asked for, with hysteresis, so that
// noise moves nothing.
//
// A model's configured rate holds until its first request came; from then on its rate is measured.
// A plan is asked for the measured rate and some growth; it stands while the rate stays inside a
// band around what was planned. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/serve/rate_monitor.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

struct DemandOptions {
  Duration time_constant = std::chrono::seconds(2);  // of the estimate
  // Planned above what is measured, for the growth of a load until the next plan is in force (some
  // seconds). What chance adds is the plan's own headroom (schedule::Headroom).
  double growth = 0.1;
  double give_back_below = 0.6;  // of the planned rate: only then is a plan made smaller
  double least_rate = 1.0;       // what a configured model keeps without traffic, per second
};

class Demands {
 public:
  Demands(const std::vector<ServedModel>& models, const DemandOptions& options);

  void arrived(std::size_t model);
  void tick(Time now);

  [[nodiscard]] double rate_seen(std::size_t model) const { return models_[model].monitor.rate(); }
  [[nodiscard]] double rate_planned(std::size_t model) const { return models_[model].planned_rate; }

  // Some model gets more than the plan covers, by more than chance explains: act now.
  [[nodiscard]] bool above_plan() const;
  // Some model has left its band, upwards or downwards: worth a new plan when the period has come.
  [[nodiscard]] bool outside_plan() const;

  // What to plan for: what was planned, where the rate is inside its band, and the new need
  // elsewhere.
  [[nodiscard]] std::vector<schedule::ModelDemand> next() const;
  // A plan for these demands was asked for.
  void planned(const std::vector<schedule::ModelDemand>& demands);

 private:
  struct Model {
    ServedModel served;
    RateMonitor monitor;
    bool seen = false;  // had a request: its rate is measured
    double planned_rate = 0;
  };
  [[nodiscard]] double needed(const Model& model) const;
  [[nodiscard]] static bool above(const Model& model);
  [[nodiscard]] bool below(const Model& model) const;

  DemandOptions options_;
  std::vector<Model> models_;
};

}  // namespace gpulet::serve
