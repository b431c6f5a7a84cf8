#include "gpulet/serve/demands.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace gpulet::serve {
namespace {

std::string per_second(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f/s", rate);
  return text.data();
}

}  // namespace

Demands::Demands(const std::vector<ServedModel>& models, const DemandOptions& options)
    : options_(options) {
  for (const ServedModel& model : models) {
    models_.push_back({model, RateMonitor(model.configured_rate, options.time_constant),
                       RateMonitor(model.configured_rate, options.slow_time_constant), false, 0});
  }
}

void Demands::arrived(std::size_t model) {
  models_[model].seen = true;
  models_[model].fast.arrived();
  models_[model].slow.arrived();
}

void Demands::tick(Time now) {
  for (Model& model : models_) {
    // Before the first request the configured rate holds, and only the interval's start moves on.
    if (model.seen) {
      model.fast.tick(now);
      model.slow.tick(now);
    } else {
      model.fast.start(now);
      model.slow.start(now);
    }
  }
}

double Demands::needed(const Model& model, double rate) const {
  const double kept = std::min(model.served.configured_rate, options_.least_rate);
  // A rate of almost nothing is the tail of an estimate, not a demand.
  const double negligible = 0.01;
  return std::max(rate < negligible ? 0.0 : rate * (1 + options_.growth), kept);
}

std::string Demands::told(const Model& model) {
  return model.served.name + " gets " + per_second(model.fast.rate()) + ", planned were " +
         per_second(model.planned_rate);
}

bool Demands::above(const Model& model) const {
  const double planned = model.planned_rate;
  return model.fast.rate() > planned + options_.deviations * model.fast.deviation_of(planned);
}

// The tail of a slow estimate may take minutes to come down: only what is far off, and by more than
// chance, is given back.
bool Demands::below(const Model& model, double part_of_planned) const {
  const double planned = model.planned_rate;
  const double rate = std::max(model.fast.rate(), model.slow.rate());
  return needed(model, rate) < part_of_planned * planned &&
         rate < planned - options_.deviations * model.slow.deviation_of(planned);
}

std::string Demands::above_plan() const {
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [this](const Model& model) { return above(model); });
  return found == models_.end() ? std::string() : told(*found);
}

std::string Demands::below_plan() const {
  const auto found = std::find_if(models_.begin(), models_.end(), [this](const Model& model) {
    return below(model, options_.give_back_below);
  });
  return found == models_.end() ? std::string() : told(*found);
}

std::vector<schedule::ModelDemand> Demands::next(bool all_served) const {
  const double band = all_served ? options_.give_back_below : options_.make_room_below;
  std::vector<schedule::ModelDemand> demands;
  for (const Model& model : models_) {
    const bool inside = model.planned_rate > 0 && !above(model) && !below(model, band);
    const double seen = std::max(model.fast.rate(), model.slow.rate());
    const double rate = inside ? model.planned_rate : needed(model, seen);
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
