#include "schedule/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace gpulet::schedule {
namespace {

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string megabytes(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f MB", value);
  return text;
}

// "v100, t4"
std::string types_of(const Problem& problem) {
  std::string types;
  for (const DeviceClass& known : problem.classes()) {
    if (types.find(known.example->type) != std::string::npos) continue;
    types += (types.empty() ? "" : ", ") + known.example->type;
  }
  return types;
}

std::string explain_latency(const Problem& problem, std::size_t model) {
  const ModelDemand& demand = *problem.models()[model];
  const Fastest fastest = fastest_batch(problem, model);
  if (fastest.where == nullptr) {
    return "the profiles of " + types_of(problem) + " have no latency of '" + demand.name +
           "' at any size that the cluster lists: measure it at those sizes, or list measured ones";
  }
  return "an SLO of " + rounded(demand.slo_ms) + " ms is out of reach: the fastest batch takes " +
         rounded(fastest.latency_ms) + " ms (one request on " + std::to_string(fastest.percent) +
         " % of a " + fastest.where->example->type +
         ", margin included) and a request may wait as " + "long for it again: raise slo_ms to " +
         rounded(2 * fastest.latency_ms) + " at least";
}

std::string explain_capacity(const Problem& problem, std::size_t model, double unserved,
                             std::size_t devices_used, const BestDevice& best) {
  const ModelDemand& demand = *problem.models()[model];
  const std::string& type = best.where->example->type;
  std::string reason = rounded(demand.rate - unserved) + " of " + rounded(demand.rate) +
                       " requests/s fit (" + std::to_string(devices_used) + " of " +
                       std::to_string(problem.device_budget()) +
                       " devices that may be used are in use): within " + rounded(demand.slo_ms) +
                       " ms one device of type " + type + " serves at most " + rounded(best.rate) +
                       " requests/s of it";
  if (best.percent != kWholeDevice.percent) {
    reason += " at " + std::to_string(best.percent) + " %, its best size";
  }
  const double more = std::max(1.0, std::ceil(unserved / best.rate));
  reason += ": add " + rounded(more) + " of them";
  if (problem.device_budget() < problem.devices().size()) reason += " (raise max_devices)";
  return reason + ", lower the rate, or raise the SLO";
}

}  // namespace

Fastest fastest_batch(const Problem& problem, std::size_t model) {
  Fastest fastest;
  for (std::size_t index = 0; index < problem.classes().size(); ++index) {
    const DeviceClass& known = problem.classes()[index];
    const profile::ModelProfile* profile = problem.on_class(model, index).profile;
    if (profile == nullptr) continue;
    for (const int percent : known.sizes) {
      const std::optional<double> latency_ms = profile->latency.latency_ms(1, Share{percent});
      if (!latency_ms) continue;
      const double with_margin_ms = *latency_ms * problem.input().options.margin;
      if (with_margin_ms < fastest.latency_ms) fastest = {with_margin_ms, percent, &known};
    }
  }
  return fastest;
}

BestDevice best_device(const Problem& problem, std::size_t model) {
  BestDevice best;
  for (std::size_t index = 0; index < problem.classes().size(); ++index) {
    const DeviceClass& known = problem.classes()[index];
    const ModelOnClass& there = problem.on_class(model, index);
    const Row& row = problem.row(model, index, there.best_size);
    const bool too_large = there.memory_mb > known.gpulet_mb.back();  // for any gpulet
    if (row.largest == 0 && !too_large) continue;
    const double limit_mb = too_large ? known.gpulet_mb.back() : known.example->memory_mb;
    if (limit_mb > 0 && there.memory_mb > limit_mb) {
      best.memory_short = best.rate == 0;
      best.memory_mb = there.memory_mb;
      best.largest_mb = std::max(best.largest_mb, limit_mb);
    } else if (row.most_rate > best.rate) {
      best.rate = row.most_rate;
      best.percent = known.sizes[there.best_size];
      best.where = &known;
      best.memory_short = false;
    }
  }
  return best;
}

bool is_measured(const Problem& problem, std::size_t model) {
  for (std::size_t index = 0; index < problem.classes().size(); ++index) {
    if (problem.on_class(model, index).profile != nullptr) return true;
  }
  return false;
}

std::string explain_unserved(const Problem& problem, std::size_t model, double unserved,
                             std::size_t devices_used) {
  const std::string& name = problem.models()[model]->name;
  if (problem.devices().empty()) {
    if (problem.input().cluster.devices.empty()) return "the cluster has no device: add one";
    return "this policy uses none of the cluster's devices: take a mig- policy for those that are "
           "divided by MIG, another for the rest, or `cover` for both";
  }
  if (problem.device_budget() == 0) return "max_devices is 0: no device may be used";
  if (!is_measured(problem, model)) {
    return "'" + name + "' is in no profile of the cluster's device types (" + types_of(problem) +
           "): measure it with `gpulet profile run`, or import its latencies";
  }
  const BestDevice best = best_device(problem, model);
  if (best.memory_short) {
    return "'" + name + "' needs " + megabytes(best.memory_mb) +
           ", and the largest device that meets its SLO has " + megabytes(best.largest_mb) +
           ": use a device with more memory";
  }
  if (best.where == nullptr) return explain_latency(problem, model);
  return explain_capacity(problem, model, unserved, devices_used, best);
}

}  // namespace gpulet::schedule
