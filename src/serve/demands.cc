#include "gpulet/serve/demands.h"

#include <algorithm>

namespace gpulet::serve {

Demands::Demands(const std::vector<ServedModel>& models, const DemandOptions& options)
    : options_(options) {
  for (const ServedModel& model : models) {
    models_.push_back({model, RateMonitor(model.configured_rate, options.time_constant), false, 0});
  }
}

void Demands::arrived(std::size_t model) {
  models_[model].seen = true;
  models_[model].monitor.arrived();
}

void Demands::tick(Time now) {
  for (Model& model : models_) {
    // Before the first request the configured rate holds, and only the interval's start moves on.
    if (model.seen) {
      model.monitor.tick(now);
    } else {
      model.monitor.start(now);
    }
  }
}

double Demands::needed(const Model& model) const {
  const double rate = model.monitor.rate();
  const double kept = std::min(model.served.configured_rate, options_.least_rate);
  // A rate of almost nothing is the tail of an estimate, not a demand.
  const double negligible = 0.01;
  return std::max(rate < negligible ? 0.0 : rate * (1 + options_.growth), kept);
}

bool Demands::above(const Model& model) {
  const double planned = model.planned_rate;
  return model.monitor.rate() > planned + 2 * model.monitor.deviation_of(planned);
}

bool Demands::below(const Model& model) const {
  return needed(model) < options_.give_back_below * model.planned_rate;
}

bool Demands::above_plan() const {
  return std::any_of(models_.begin(), models_.end(),
                     [](const Model& model) { return above(model); });
}

bool Demands::outside_plan() const {
  return std::any_of(models_.begin(), models_.end(),
                     [this](const Model& model) { return above(model) || below(model); });
}

std::vector<schedule::ModelDemand> Demands::next() const {
  std::vector<schedule::ModelDemand> demands;
  for (const Model& model : models_) {
    const bool inside = model.planned_rate > 0 && !above(model) && !below(model);
    const double rate = inside ? model.planned_rate : needed(model);
    if (rate > 0) {
      demands.push_back({model.served.name, rate, model.served.slo_ms, model.served.max_batch});
    }
  }
  return demands;
}

void Demands::planned(const std::vector<schedule::ModelDemand>& demands) {
  for (Model& model : models_) {
    const auto found = std::find_if(demands.begin(), demands.end(), [&model](const auto& demand) {
      return demand.name == model.served.name;
    });
    model.planned_rate = found == demands.end() ? 0 : found->rate;
  }
}

}  // namespace gpulet::serve
