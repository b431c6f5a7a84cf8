#include "verify/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/schedule/scaling.h"

namespace gpulet::verify {

using schedule::Assignment;
using schedule::Plan;
using schedule::PlanInput;
using schedule::PlannedGpulet;
using schedule::PredictedViolations;

namespace {

// What the chain calls late beyond this is simulated. Without a limit, and unless the plan is far
// beyond schedule::kSmallPlan, all that may matter to a reader is.
constexpr double kDoubtful = 0.002;
constexpr double kWorthReading = 0.0002;
constexpr std::size_t kReadable = 4 * schedule::kSmallPlan;

// The speed that Predictions::spent_ms() reckons with.
constexpr double kMsPerModel = 0.4;       // of a device, by the chain
constexpr double kRequestsPerMs = 5'500;  // simulated

std::string key_of(const schedule::DeviceKey& device) {
  return fmt::format("\n{}/{}", device.node, device.device);
}

std::string content_of(const PlannedGpulet& gpulet) {
  std::string content = fmt::format(
      "\n{} {} {} {:a}", to_string(gpulet.service), gpulet.size.percent,
      gpulet.instance ? to_string(*gpulet.instance) : std::string(), gpulet.duty_cycle_ms);
  for (const Assignment& one : gpulet.assignments) {
    content += fmt::format("\n  {:a} {} {:a} {:a} {}", one.rate, one.batch, one.slowdown,
                           one.slo_ms, one.model);
  }
  return content;
}

std::size_t models_of(const Plan& plan) {
  std::size_t models = 0;
  for (const PlannedGpulet& gpulet : plan.gpulets) models += gpulet.assignments.size();
  return models;
}

}  // namespace

Predictions::Predictions(const PlanInput& input, const std::optional<double>& limit, double effort)
    : input_(input),
      limit_(limit),
      effort_(effort),
      doubtful_(limit || schedule::size_of(input) > kReadable ? kDoubtful : kWorthReading) {}

Prediction Predictions::of(const Plan& plan) {
  Prediction predicted{by_chain(plan), {}};
  predicted.simulated = simulate(plan, doubtful(plan, predicted.violations));
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
      const auto found = predicted.simulated.find(plan.gpulets[at].assignments[slot].model);
      if (found != predicted.simulated.end()) predicted.violations[at][slot] = found->second.mean;
    }
  }
  return predicted;
}

PredictedViolations Predictions::by_chain(const Plan& plan) {
  PredictedViolations predicted(plan.gpulets.size());
  for (std::size_t first = 0; first < plan.gpulets.size();) {
    Plan part;  // the gpulets of one device; they follow one another
    std::size_t end = first;
    std::string key = key_of(plan.gpulets[first].device);
    for (; end < plan.gpulets.size() && plan.gpulets[end].device == plan.gpulets[first].device;
         ++end) {
      part.gpulets.push_back(plan.gpulets[end]);
      key += content_of(plan.gpulets[end]);
    }
    const auto [known, added] = chains_.try_emplace(std::move(key));
    if (added) {
      known->second = schedule::predict_violations(part, input_);
      spent_ms_ += kMsPerModel * static_cast<double>(models_of(part));
    }
    std::copy(known->second.begin(), known->second.end(),
              predicted.begin() + static_cast<std::ptrdiff_t>(first));
    first = end;
  }
  return predicted;
}

Predictions::Doubts Predictions::doubtful(const Plan& plan,
                                          const PredictedViolations& predicted) const {
  Doubts doubts;
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
      const double late = predicted[at][slot].value_or(0);
      if (late <= doubtful_) continue;
      Doubt& doubt = doubts[plan.gpulets[at].assignments[slot].model];
      if (late > doubt.late) doubt = {at, late};
    }
  }
  return doubts;
}

std::map<std::string, Predictions::Scene> Predictions::scenes_of(const Plan& plan,
                                                                 const Doubts& doubts) {
  std::map<std::string, Scene> scenes;
  for (const auto& [model, doubt] : doubts) {
    std::vector<const PlannedGpulet*> around =
        gpulets_around(plan, model, plan.gpulets[doubt.gpulet].device);
    std::string content;
    for (const PlannedGpulet* one : around) {
      content += key_of(one->device);
      content += content_of(*one);
    }
    Scene& scene = scenes[std::move(content)];
    scene.around = std::move(around);
    scene.models.push_back({model, doubt.late});
  }
  return scenes;
}

std::map<std::string_view, LatePart> Predictions::simulate(const Plan& plan, const Doubts& doubts) {
  std::map<std::string_view, LatePart> late;
  for (const auto& [content, scene] : scenes_of(plan, doubts)) {
    auto& known = simulated_[content];
    std::vector<AskedModel> unknown;
    std::copy_if(scene.models.begin(), scene.models.end(), std::back_inserter(unknown),
                 [&known](const AskedModel& model) { return !known.contains(model.name); });
    if (!unknown.empty()) {
      const SimulatedViolations results =
          simulate_violations(plan, input_, scene.around, unknown, {limit_, effort_});
      spent_ms_ += static_cast<double>(results.requests) / kRequestsPerMs;
      for (std::size_t at = 0; at < unknown.size(); ++at)
        known.emplace(std::string(unknown[at].name), results.late[at]);
    }
    for (const AskedModel& model : scene.models) {
      if (const auto& one = known.find(model.name)->second) late.emplace(model.name, *one);
    }
  }
  return late;
}

}  // namespace gpulet::verify
