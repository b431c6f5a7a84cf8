#include "gpulet/schedule/explanation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "schedule/explain.h"
#include "schedule/plan_context.h"

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
std::string types_of(const PlanContext& context) {
  std::string types;
  for (const DeviceClass& known : context.classes()) {
    if (types.find(known.example->type) != std::string::npos) continue;
    types += (types.empty() ? "" : ", ") + known.example->type;
  }
  return types;
}

std::string explain_latency(const PlanContext& context, std::size_t model) {
  const ModelDemand& demand = *context.models()[model];
  const Fastest fastest = fastest_batch(context, model);
  if (fastest.where == nullptr) {
    return "the profiles of " + types_of(context) + " have no latency of '" + demand.name +
           "' at any size that the cluster lists: measure it at those sizes, or list measured ones";
  }
  return "an SLO of " + rounded(demand.slo_ms) + " ms is out of reach: the fastest batch takes " +
         rounded(fastest.latency_ms) + " ms (one request on " + std::to_string(fastest.percent) +
         " % of a " + fastest.where->example->type +
         ", margin included) and a request may wait as " + "long for it again: raise slo_ms to " +
         rounded(2 * fastest.latency_ms) + " at least";
}

std::string explain_capacity(const PlanContext& context, std::size_t model, double unserved,
                             std::size_t devices_used, const BestDevice& best) {
  const ModelDemand& demand = *context.models()[model];
  const std::string& type = best.where->example->type;
  std::string reason = rounded(demand.rate - unserved) + " of " + rounded(demand.rate) +
                       " requests/s fit (" + std::to_string(devices_used) + " of " +
                       std::to_string(context.device_budget()) +
                       " devices that may be used are in use): within " + rounded(demand.slo_ms) +
                       " ms one device of type " + type + " serves at most " + rounded(best.rate) +
                       " requests/s of it";
  if (best.percent != kWholeDevice.percent) {
    reason += " at " + std::to_string(best.percent) + " %, its best size";
  }
  const double more = std::max(1.0, std::ceil(unserved / best.rate));
  reason += ": add " + rounded(more) + " of them";
  if (context.device_budget() < context.devices().size()) reason += " (raise max_devices)";
  return reason + ", lower the rate, or raise the SLO";
}

}  // namespace

Fastest fastest_batch(const PlanContext& context, std::size_t model) {
  Fastest fastest;
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    const DeviceClass& known = context.classes()[index];
    const profile::ModelProfile* profile = context.on_class(model, index).profile;
    if (profile == nullptr) continue;
    for (const int percent : known.sizes) {
      const std::optional<double> latency_ms = profile->latency.latency_ms(1, Share{percent});
      if (!latency_ms) continue;
      const double with_margin_ms = *latency_ms * context.input().options.margin;
      if (with_margin_ms < fastest.latency_ms) fastest = {with_margin_ms, percent, &known};
    }
  }
  return fastest;
}

BestDevice best_device(const PlanContext& context, std::size_t model) {
  BestDevice best;
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    const DeviceClass& known = context.classes()[index];
    const ModelOnClass& on_class = context.on_class(model, index);
    const LatencyCurve& curve = context.curve(model, index, on_class.best_size);
    const bool too_large = on_class.memory_mb > known.gpulet_mb.back();
    if (curve.max_batch == 0 && !too_large) continue;
    const double limit_mb = too_large ? known.gpulet_mb.back() : known.example->memory_mb;
    if (limit_mb > 0 && on_class.memory_mb > limit_mb) {
      best.memory_short = best.rate == 0;
      best.memory_mb = on_class.memory_mb;
      best.largest_mb = std::max(best.largest_mb, limit_mb);
    } else if (curve.max_rate > best.rate) {
      best.rate = curve.max_rate;
      best.percent = known.sizes[on_class.best_size];
      best.where = &known;
      best.memory_short = false;
    }
  }
  return best;
}

bool is_measured(const PlanContext& context, std::size_t model) {
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    if (context.on_class(model, index).profile != nullptr) return true;
  }
  return false;
}

std::string explain_unserved(const PlanContext& context, std::size_t model, double unserved,
                             std::size_t devices_used) {
  const std::string& name = context.models()[model]->name;
  if (context.devices().empty()) {
    if (context.input().cluster.devices.empty()) return "the cluster has no device: add one";
    return "this policy uses none of the cluster's devices: take a mig- policy for those that are "
           "divided by MIG, another for the rest, or `cover` for both";
  }
  if (context.device_budget() == 0) return "max_devices is 0: no device may be used";
  if (!is_measured(context, model)) {
    return "'" + name + "' is in no profile of the cluster's device types (" + types_of(context) +
           "): measure it with `gpulet profile run`, or import its latencies";
  }
  const BestDevice best = best_device(context, model);
  if (best.memory_short) {
    return "'" + name + "' needs " + megabytes(best.memory_mb) +
           ", and the largest device that meets its SLO has " + megabytes(best.largest_mb) +
           ": use a device with more memory";
  }
  if (best.where == nullptr) return explain_latency(context, model);
  return explain_capacity(context, model, unserved, devices_used, best);
}

namespace {

constexpr double kNoticeableSlowdown = 1.005;

std::string figure(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value >= 100 ? "%.0f" : "%.3g", value);
  return text.data();
}

std::string percent(double value) { return figure(value) + " %"; }

std::string key_text(const DeviceKey& device) {
  return device.node + "/" + std::to_string(device.device);
}

std::string model_names(const PlannedGpulet& gpulet) {
  std::string names;
  for (const Assignment& one : gpulet.assignments)
    names += (names.empty() ? "" : " and ") + one.model;
  return names;
}

using ByDevice = std::map<DeviceKey, std::vector<const PlannedGpulet*>>;

ByDevice by_device(const Plan& plan) {
  ByDevice gpulets;
  for (const PlannedGpulet& gpulet : plan.gpulets) gpulets[gpulet.device].push_back(&gpulet);
  return gpulets;
}

// Whether the plan has a gpulet with the same device, size and models.
bool has_equal(const ByDevice& plan, const PlannedGpulet& gpulet) {
  const auto same_model = [](const Assignment& a, const Assignment& b) {
    return a.model == b.model;
  };
  const auto found = plan.find(gpulet.device);
  if (found == plan.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const PlannedGpulet* other) {
    return other->size == gpulet.size && other->instance == gpulet.instance &&
           std::equal(other->assignments.begin(), other->assignments.end(),
                      gpulet.assignments.begin(), gpulet.assignments.end(), same_model);
  });
}

// A gpulet's class and size as indices of the PlanContext.
struct SizeIndex {
  std::size_t device_class = 0;
  std::size_t size = 0;  // index into the sizes of the class
};

class Explainer {
 public:
  Explainer(const Plan& plan, const PlanInput& input)
      : plan_(plan),
        context_(input, Division::either),
        on_device_(by_device(plan)),
        before_(input.current == nullptr ? ByDevice() : by_device(*input.current)) {
    for (std::size_t index = 0; index < context_.classes().size(); ++index) {
      for (const std::uint32_t device : context_.classes()[index].devices)
        class_of_.emplace(context_.devices()[device]->key, index);
    }
  }

  [[nodiscard]] Explanation run() const {
    Explanation explanation;
    explanation.gpulets.reserve(plan_.gpulets.size());
    for (const PlannedGpulet& gpulet : plan_.gpulets)
      explanation.gpulets.push_back(why_size(gpulet) + ' ' + why_place(gpulet));
    for (const Unserved& unserved : plan_.unserved)
      explanation.missing.push_back(unserved_detail(unserved));
    return explanation;
  }

 private:
  [[nodiscard]] std::optional<std::size_t> model_of(const std::string& name) const {
    const auto& models = context_.models();
    const auto found = std::lower_bound(
        models.begin(), models.end(), name,
        [](const ModelDemand* demand, const std::string& wanted) { return demand->name < wanted; });
    if (found == models.end() || (*found)->name != name) return std::nullopt;
    return static_cast<std::size_t>(found - models.begin());
  }

  [[nodiscard]] std::optional<SizeIndex> size_index(const PlannedGpulet& gpulet) const {
    const auto known = class_of_.find(gpulet.device);
    if (known == class_of_.end()) return std::nullopt;
    const std::vector<int>& sizes = context_.classes()[known->second].sizes;
    const auto found = std::lower_bound(sizes.begin(), sizes.end(), gpulet.size.percent);
    if (found == sizes.end() || *found != gpulet.size.percent) return std::nullopt;
    return SizeIndex{known->second, static_cast<std::size_t>(found - sizes.begin())};
  }

  // ---- sizes

  [[nodiscard]] std::string why_size(const PlannedGpulet& gpulet) const {
    const std::string size = percent(gpulet.size.percent);
    if (gpulet.service == Service::by_need)
      return "It has the whole device, which takes a request of the model that needs it most.";
    if (gpulet.service == Service::controlled)
      return "Its cores follow its response time, so it has no fixed size.";
    const std::optional<SizeIndex> at = size_index(gpulet);
    if (!at) return size + " of the device.";
    return gpulet.assignments.size() == 1 ? why_size_of_one(gpulet, *at)
                                          : why_size_of_many(gpulet, *at);
  }

  [[nodiscard]] std::string why_size_of_one(const PlannedGpulet& gpulet,
                                            const SizeIndex& at) const {
    const Assignment& one = gpulet.assignments.front();
    const std::string size = percent(gpulet.size.percent);
    const std::optional<std::size_t> model = model_of(one.model);
    if (!model) return size + " of the device.";
    if (at.size == 0) return size + " is the smallest size of the device.";
    const std::string within = " within " + figure(one.slo_ms) + " ms";
    const int smaller_percent = context_.classes()[at.device_class].sizes[at.size - 1];
    const std::string smaller = percent(smaller_percent);
    const LatencyCurve& below = context_.curve(*model, at.device_class, at.size - 1);
    if (below.max_batch == 0)
      return size + " is the smallest size that runs a batch in time: " + smaller +
             " is too slow for " + figure(one.slo_ms) + " ms.";
    if (below.max_rate < one.rate)
      return size + " is the smallest size that serves " + figure(one.rate) + " requests/s" +
             within + ": " + smaller + " serves " + figure(below.max_rate) + " at most.";
    const LatencyCurve& curve = context_.curve(*model, at.device_class, at.size);
    return size + " serves up to " + figure(curve.max_rate) + " requests/s" + within +
           ", more than its " + figure(one.rate) + ": " + smaller + " would serve up to " +
           figure(below.max_rate) + '.';
  }

  [[nodiscard]] std::string why_size_of_many(const PlannedGpulet& gpulet,
                                             const SizeIndex& at) const {
    double batches_ms = 0;
    for (const Assignment& one : gpulet.assignments) batches_ms += one.latency_ms;
    std::string text = model_names(gpulet) + " take turns: a batch of each takes " +
                       figure(batches_ms) + " ms of a round of " + figure(gpulet.duty_cycle_ms) +
                       " ms, so that each meets its SLO.";
    if (at.size == 0) return text;
    const std::string smaller = percent(context_.classes()[at.device_class].sizes[at.size - 1]);
    double busy = 0;
    for (const Assignment& one : gpulet.assignments) {
      const std::optional<std::size_t> model = model_of(one.model);
      if (!model) return text;
      const LatencyCurve& below = context_.curve(*model, at.device_class, at.size - 1);
      if (below.max_batch == 0) return text + ' ' + smaller + " is too slow for " + one.model + '.';
      busy += one.rate * below.min_request_ms / 1000;
    }
    if (busy > 1)
      text += " On " + smaller + " they would need " + percent(100 * busy) + " of the time.";
    return text;
  }

  // ---- places

  [[nodiscard]] std::string why_place(const PlannedGpulet& gpulet) const {
    std::string text;
    if (has_equal(before_, gpulet)) {
      text = "It stays where it ran before";
    } else {
      text = "It is placed on " + key_text(gpulet.device);
    }
    std::string beside;
    int taken = 0;
    for (const PlannedGpulet* const other : on_device_.at(gpulet.device)) {
      taken += other->size.percent;
      if (other == &gpulet) continue;
      beside += (beside.empty() ? "" : ", ") + model_names(*other) + " (" +
                percent(other->size.percent) + ")";
    }
    const int free = std::max(0, kWholeDevice.percent - taken);
    const std::string rest =
        free == 0 ? "which fills the device" : "which leaves " + percent(free) + " free";
    if (gpulet.service == Service::controlled) return text + '.';
    text += beside.empty() ? " alone, " : " beside " + beside + ", ";
    text += rest + '.';
    double slowdown = 1;
    for (const Assignment& one : gpulet.assignments) slowdown = std::max(slowdown, one.slowdown);
    if (slowdown > kNoticeableSlowdown)
      text += " Its neighbours slow it by " + percent(100 * (slowdown - 1)) +
              ", which the plan allows for.";
    return text;
  }

  // ---- unserved rates

  [[nodiscard]] UnservedDetail unserved_detail(const Unserved& unserved) const {
    UnservedDetail detail{unserved.model, unserved.rate};
    const std::optional<std::size_t> model = model_of(unserved.model);
    if (!model) return detail;
    if (context_.device_budget() == 0) {
      detail.cause = UnservedCause::any_device;
    } else if (!is_measured(context_, *model)) {
      detail.cause = UnservedCause::profile;
    } else if (context_.models()[*model]->alone && !has_place(unserved.model)) {
      detail.cause = UnservedCause::kept_apart;
    } else {
      const BestDevice best = best_device(context_, *model);
      if (best.memory_short) {
        detail.cause = UnservedCause::memory;
        detail.memory_mb = best.memory_mb;
      } else if (best.where == nullptr) {
        detail.cause = UnservedCause::latency;
        const Fastest fastest = fastest_batch(context_, *model);
        if (fastest.where != nullptr) detail.least_slo_ms = 2 * fastest.latency_ms;
      } else {
        detail.devices = unserved.rate / best.rate;
      }
    }
    return detail;
  }

  [[nodiscard]] bool has_place(const std::string& model) const {
    return std::any_of(plan_.gpulets.begin(), plan_.gpulets.end(), [&](const auto& gpulet) {
      return std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                         [&](const Assignment& one) { return one.model == model; });
    });
  }

  const Plan& plan_;
  const PlanContext context_;
  std::map<DeviceKey, std::size_t> class_of_;
  const ByDevice on_device_;
  const ByDevice before_;  // of the plan in force
};

}  // namespace

std::string_view to_string(UnservedCause cause) {
  switch (cause) {
    case UnservedCause::devices:
      return "devices";
    case UnservedCause::any_device:
      return "any_device";
    case UnservedCause::profile:
      return "profile";
    case UnservedCause::latency:
      return "latency";
    case UnservedCause::memory:
      return "memory";
    case UnservedCause::kept_apart:
      return "kept_apart";
  }
  return "devices";
}

Explanation explain(const Plan& plan, const PlanInput& input) {
  return Explainer(plan, input).run();
}

}  // namespace gpulet::schedule
