#include "gpulet/control/identify.h"

#include <cstddef>
#include <string>
#include <vector>

namespace gpulet::control {
namespace {

constexpr std::size_t kLeastSamples = 8;

// One equation: change = -k now + k b before + c.
struct Equation {
  double now = 0;     // cores of the sample that the change leads to
  double before = 0;  // and of the one before it
  double change = 0;  // of the response
};

// Without c: each value less the mean of all.
std::vector<Equation> centred(std::span<const Sample> run) {
  std::vector<Equation> equations;
  Equation mean;
  for (std::size_t at = 1; at < run.size(); ++at) {
    const Equation equation{run[at].cores, run[at - 1].cores,
                            run[at].response_s - run[at - 1].response_s};
    equations.push_back(equation);
    const double part = 1 / static_cast<double>(run.size() - 1);
    mean.now += part * equation.now;
    mean.before += part * equation.before;
    mean.change += part * equation.change;
  }
  for (Equation& equation : equations) {
    equation.now -= mean.now;
    equation.before -= mean.before;
    equation.change -= mean.change;
  }
  return equations;
}

double mean_cores(std::span<const Sample> run) {
  double sum = 0;
  for (const Sample& sample : run) sum += sample.cores;
  return sum / static_cast<double>(run.size());
}

struct Sums {
  double now_now = 0;
  double now_before = 0;
  double before_before = 0;
  double now_change = 0;
  double before_change = 0;
  double change_change = 0;
};

Sums sums(const std::vector<Equation>& equations) {
  Sums total;
  for (const Equation& equation : equations) {
    total.now_now += equation.now * equation.now;
    total.now_before += equation.now * equation.before;
    total.before_before += equation.before * equation.before;
    total.now_change += equation.now * equation.change;
    total.before_change += equation.before * equation.change;
    total.change_change += equation.change * equation.change;
  }
  return total;
}

Status invalid(const std::string& message) { return {StatusCode::invalid, message}; }

}  // namespace

Result<Identified> identify(std::span<const Sample> run) {
  if (run.size() < kLeastSamples) {
    return invalid("a controller's plant takes at least " + std::to_string(kLeastSamples) +
                   " periods to identify; there were " + std::to_string(run.size()));
  }
  const Sums of = sums(centred(run));
  const double determinant = of.now_now * of.before_before - of.now_before * of.now_before;
  constexpr double kOfScale = 1e-9;
  if (!(determinant > kOfScale * of.now_now * of.before_before)) {
    return invalid("the cores must change in steps while a plant is identified");
  }
  const double of_now =
      (of.now_change * of.before_before - of.before_change * of.now_before) / determinant;
  const double of_before =
      (of.before_change * of.now_now - of.now_change * of.now_before) / determinant;
  const Plant plant{-of_now, of_now == 0 ? 0 : -of_before / of_now, mean_cores(run)};
  if (!(plant.gain_s_per_core > 0) || !(plant.zero < 1)) {
    return invalid("the response time must fall where cores rise; found a gain of " +
                   std::to_string(plant.gain_s_per_core) + " s per core and a zero at " +
                   std::to_string(plant.zero));
  }
  const double accounted = of_now * of.now_change + of_before * of.before_change;
  return Identified{plant, accounted / of.change_change};
}

Plant plant_of_queue(double period_s) { return {period_s / 2, -1, 1}; }

}  // namespace gpulet::control
