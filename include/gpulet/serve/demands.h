// Demands: from observed arrivals to what the scheduler is asked for, with hysteresis, so that
// noise moves nothing.
//
// A model's configured rate holds until its first request came; from then on its rate is measured,
// twice: a fast estimate finds a load that grows, a slow one a load that has gone for good. A plan
// is asked for the measured rate and some growth; it stands until a rate leaves it by more than
// chance explains. A model without a request for a while falls asleep: its demand is 0, and the
// next request wakes it. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
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
  double least_rate = 1.0;       // what a model that is awake keeps without traffic, per second
  // Without a request for so long, since the start or the last one, a model falls asleep. 0: never.
  Duration idle_after = std::chrono::seconds(300);
};

class Demands {
 public:
  // They get the indices 0, 1, .. One without a configured rate sleeps from the start.
  Demands(const std::vector<ServedModel>& models, const DemandOptions& options);

  // Models come and go; an index comes again once it was removed.
  std::size_t add(const ServedModel& model, Time now);
  // Another rate, SLO or largest batch.
  void change(std::size_t model, const ServedModel& changed, Time now);
  void remove(std::size_t model);

  // The model was planned for at this rate by a frontend before this one, from what it measured.
  void adopt(std::size_t model, double planned_rate, Time now);

  void arrived(std::size_t model) { awaken(model, true); }
  // As if a request had come, but none is counted.
  void wake(std::size_t model) { awaken(model, false); }
  void tick(Time now);

  [[nodiscard]] double rate_seen(std::size_t model) const { return models_[model].fast.rate(); }
  [[nodiscard]] double rate_planned(std::size_t model) const { return models_[model].planned_rate; }

  [[nodiscard]] bool asleep(std::size_t model) const { return models_[model].asleep; }

  // A model whose rate is not what was planned for.
  struct Strayed {
    std::string model;
    std::string told;  // the model with both rates, in words
  };
  // Some model gets more than the plan covers, by more than chance explains: act now. Nothing where
  // there is none.
  [[nodiscard]] std::optional<Strayed> above_plan() const;
  // Some model has left its band downwards: worth a new plan when the period has come. Where the
  // plan in force does not serve everything, what one model holds too much others lack: then the
  // band is narrow and the fast estimate counts.
  [[nodiscard]] std::optional<Strayed> below_plan(bool all_served) const;

  // What to plan for: what was planned, where the rate is inside its band, and the new need
  // elsewhere.
  [[nodiscard]] std::vector<schedule::ModelDemand> next(bool all_served) const;
  // A plan for these demands was asked for.
  void planned(const std::vector<schedule::ModelDemand>& demands);

 private:
  struct Model {
    ServedModel served;
    RateMonitor fast;
    RateMonitor slow;
    bool seen = false;    // had a request, or slept: its rate is measured
    bool asleep = false;  // no request for long, or never and none expected
    bool active = true;   // had a request since the last tick
    Time last_active{};
    double planned_rate = 0;
  };
  [[nodiscard]] Model made(const ServedModel& model) const;
  void awaken(std::size_t model, bool by_request);
  void fall_asleep(Model& model, Time now) const;
  [[nodiscard]] double needed(const Model& model, double rate) const;
  [[nodiscard]] static std::string told(const Model& model);
  [[nodiscard]] bool above(const Model& model) const;
  [[nodiscard]] bool below(const Model& model, bool all_served) const;
  [[nodiscard]] static double lasting_rate(const Model& model, bool all_served);

  DemandOptions options_;
  std::vector<Model> models_;
  std::vector<std::size_t> removed_;  // indices that come again
};

}  // namespace gpulet::serve
