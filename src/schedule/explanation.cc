#include "gpulet/schedule/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "gpulet/schedule/scaling.h"
#include "schedule/plan_output.h"

namespace gpulet::schedule {
namespace {

// The model's fastest batch at any size of any class, including the margin.
struct Fastest {
  double latency_ms = std::numeric_limits<double>::infinity();
  int percent = 0;
  const DeviceClass* where = nullptr;  // null: not measured at any of the sizes
};

Fastest fastest_batch(const PlanContext& context, std::size_t model) {
  Fastest fastest;
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    const DeviceClass& known = context.classes()[index];
    const profile::ModelProfile* profile = context.on_class(model, index).profile;
    if (profile == nullptr) continue;
    for (const int percent : known.sizes) {
      const std::optional<double> latency_ms = profile->latency.latency_ms(1, Share{percent});
      if (!latency_ms) continue;
      const double with_margin_ms =
          *latency_ms * margin_of(context.input().options.margin, profile->latency);
      if (with_margin_ms < fastest.latency_ms) fastest = {with_margin_ms, percent, &known};
    }
  }
  return fastest;
}

// The most that one empty device serves of the model, and whether memory prevents it.
struct BestDevice {
  double rate = 0;
  int percent = 0;
  const DeviceClass* where = nullptr;
  double memory_mb = 0;       // required by the model
  double largest_mb = 0;      // the largest memory of a device
  bool memory_short = false;  // on every device that meets the SLO
};

BestDevice best_device(const PlanContext& context, std::size_t model) {
  BestDevice best;
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    const DeviceClass& known = context.classes()[index];
    const ModelOnClass& on_class = context.on_class(model, index);
    const LatencyCurve& curve = context.own_curve(model, index, on_class.best_size);
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

// Whether a device type of the cluster has a profile of the model.
bool is_measured(const PlanContext& context, std::size_t model) {
  for (std::size_t index = 0; index < context.classes().size(); ++index) {
    if (context.on_class(model, index).profile != nullptr) return true;
  }
  return false;
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
    return fmt::format(
        "the profiles of {} have no latency of '{}' at any size that the cluster lists: measure it "
        "at those sizes, or list measured ones",
        types_of(context), demand.name);
  }
  const profile::ModelProfile* const known =
      context.input().profiles->find(fastest.where->example->type)->second.find(demand.name);
  if (known != nullptr && known->estimate) {
    return fmt::format(
        "an SLO of {:.4g} ms is out of reach by an estimate: the fastest batch takes {:.4g} ms "
        "(one "
        "request on {} % of a {}, margins included) and a request may wait as long for it again: "
        "measure the model with `gpulet profile run`, or raise slo_ms to {:.4g} at least",
        demand.slo_ms, fastest.latency_ms, fastest.percent, fastest.where->example->type,
        2 * fastest.latency_ms);
  }
  return fmt::format(
      "an SLO of {:.4g} ms is out of reach: the fastest batch takes {:.4g} ms (one request on {} % "
      "of a {}, margin included) and a request may wait as long for it again: raise slo_ms to "
      "{:.4g} at least",
      demand.slo_ms, fastest.latency_ms, fastest.percent, fastest.where->example->type,
      2 * fastest.latency_ms);
}

std::string explain_capacity(const PlanContext& context, std::size_t model, double unserved,
                             std::size_t devices_used, const BestDevice& best) {
  const ModelDemand& demand = *context.models()[model];
  const bool partial = best.percent != kWholeDevice.percent;
  const bool limited = context.device_budget() < context.devices().size();
  return fmt::format(
      "{:.4g} of {:.4g} requests/s fit ({} of {} devices that may be used are in use): within "
      "{:.4g} ms one device of type {} serves at most {:.4g} requests/s of it{}: add {:.4g} of "
      "them{}, lower the rate, or raise the SLO",
      demand.rate - unserved, demand.rate, devices_used, context.device_budget(), demand.slo_ms,
      best.where->example->type, best.rate,
      partial ? fmt::format(" at {} %, its best size", best.percent) : "",
      std::max(1.0, std::ceil(unserved / best.rate)), limited ? " (raise max_devices)" : "");
}

}  // namespace

std::string explain_unserved(const PlanContext& context, std::size_t model, double unserved,
                             std::size_t devices_used) {
  const std::string& name = context.models()[model]->name;
  if (context.devices().empty()) {
    if (context.input().cluster.devices.empty()) return "the cluster has no device: add one";
    return "this policy uses none of the cluster's devices: take a mig- policy for those that are "
           "divided by MIG, another for the rest, or `auto` for both";
  }
  if (context.device_budget() == 0) return "max_devices is 0: no device may be used";
  if (!is_measured(context, model)) {
    return fmt::format(
        "'{}' is in no profile of the cluster's device types ({}): measure it with `gpulet profile "
        "run`, or import its latencies",
        name, types_of(context));
  }
  const BestDevice best = best_device(context, model);
  if (best.memory_short) {
    return fmt::format(
        "'{}' needs {:.0f} MB, and the largest device that meets its SLO has {:.0f} MB: use a "
        "device with more memory",
        name, best.memory_mb, best.largest_mb);
  }
  if (best.where == nullptr) return explain_latency(context, model);
  return explain_capacity(context, model, unserved, devices_used, best);
}

namespace {

constexpr double kNoticeableSlowdown = 1.005;

std::string figure(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string percent(double value) { return figure(value) + " %"; }

std::string model_names(const PlannedGpulet& gpulet) {
  std::string names;
  for (const Assignment& one : gpulet.assignments)
    names += (names.empty() ? "" : " and ") + one.model;
  return names;
}

// How long a request may take that just misses a batch.
double longest_ms(const PlannedGpulet& gpulet) {
  double batch_ms = 0;
  for (const Assignment& one : gpulet.assignments) batch_ms = std::max(batch_ms, one.latency_ms);
  return gpulet.duty_cycle_ms + batch_ms;
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
  std::uint32_t device_class = 0;
  std::uint32_t size = 0;  // index into the sizes of the class
};

class Explainer {
 public:
  Explainer(const Plan& plan, const PlanInput& input)
      : plan_(plan),
        context_(input, Division::either),
        on_device_(by_device(plan)),
        before_(input.current == nullptr ? ByDevice() : by_device(*input.current)) {}

  [[nodiscard]] Explanation run() const {
    Explanation explanation;
    explanation.gpulets.reserve(plan_.gpulets.size());
    for (const PlannedGpulet& gpulet : plan_.gpulets)
      explanation.gpulets.push_back(why_size(without_spare(gpulet)) + why_spare(gpulet) + ' ' +
                                    why_place(gpulet) + what_is_estimated(gpulet));
    for (const Unserved& unserved : plan_.unserved)
      explanation.missing.push_back(unserved_detail(unserved));
    return explanation;
  }

 private:
  [[nodiscard]] std::optional<SizeIndex> size_index(const PlannedGpulet& gpulet) const {
    const std::optional<std::uint32_t> device = context_.find_device(gpulet.device);
    if (!device) return std::nullopt;
    const std::uint32_t device_class = context_.class_of(*device);
    const auto size = context_.classes()[device_class].find_size(gpulet.size);
    if (!size) return std::nullopt;
    return SizeIndex{device_class, *size};
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
    const std::optional<std::uint32_t> model = context_.find_model(one.model);
    if (!model) return size + " of the device.";
    if (at.size == 0) return size + " is the smallest size of the device.";
    const std::uint32_t processes = processes_beside(plan_.gpulets, gpulet);
    const double total = one.rate * processes;
    const std::string slo = figure(one.slo_ms);
    const std::string rate = figure(total);
    const std::string several =
        processes == 1 ? ""
                       : fmt::format(" {} processes of the instance divide the rate.", processes);
    const std::string smaller = percent(context_.classes()[at.device_class].sizes[at.size - 1]);
    const LatencyCurve& below = context_.own_curve(*model, at.device_class, at.size - 1);
    if (below.max_batch == 0) {
      return fmt::format(
          "{} is the smallest size that runs a batch in time: {} is too slow for {} ms.{}", size,
          smaller, slo, several);
    }
    if (below.max_rate < total) {
      return fmt::format(
          "{} is the smallest size that serves {} requests/s within {} ms: {} serves {} at most.{}",
          size, rate, slo, smaller, figure(below.max_rate), several);
    }
    const LatencyCurve& curve = context_.own_curve(*model, at.device_class, at.size);
    return fmt::format(
        "{} serves up to {} requests/s within {} ms, more than its {}: {} would serve up to {}.{}",
        size, figure(curve.max_rate), slo, rate, smaller, figure(below.max_rate), several);
  }

  [[nodiscard]] std::string why_size_of_many(const PlannedGpulet& gpulet,
                                             const SizeIndex& at) const {
    double batches_ms = 0;
    for (const Assignment& one : gpulet.assignments) batches_ms += one.latency_ms;
    std::string text = fmt::format(
        "{} take turns: a batch of each takes {} ms of a round of {} ms, so that each meets its "
        "SLO.",
        model_names(gpulet), figure(batches_ms), figure(gpulet.duty_cycle_ms));
    if (at.size == 0) return text;
    const std::string smaller = percent(context_.classes()[at.device_class].sizes[at.size - 1]);
    double busy = 0;
    for (const Assignment& one : gpulet.assignments) {
      const std::optional<std::uint32_t> model = context_.find_model(one.model);
      if (!model) return text;
      const LatencyCurve& below = context_.curve(*model, at.device_class, at.size - 1);
      if (below.max_batch == 0) return text + ' ' + smaller + " is too slow for " + one.model + '.';
      busy += one.rate * below.min_request_ms / 1000;
    }
    if (busy > 1)
      text += " On " + smaller + " they would need " + percent(100 * busy) + " of the time.";
    return text;
  }

  [[nodiscard]] static std::string why_spare(const PlannedGpulet& gpulet) {
    if (policy_size(gpulet) == gpulet.size) return {};
    return fmt::format(
        " It has {}, because share that no gpulet needs is divided: a request takes at most {} ms "
        "instead of {}.",
        percent(gpulet.size.percent), figure(longest_ms(gpulet)),
        figure(longest_ms(without_spare(gpulet))));
  }

  [[nodiscard]] std::string what_is_estimated(const PlannedGpulet& gpulet) const {
    const std::optional<std::uint32_t> device = context_.find_device(gpulet.device);
    if (!device) return {};
    std::string text;
    for (const Assignment& one : gpulet.assignments) {
      const std::optional<std::uint32_t> model = context_.find_model(one.model);
      if (!model) continue;
      const profile::ModelProfile* const known =
          context_.on_class(*model, context_.class_of(*device)).profile;
      if (known != nullptr && known->estimate)
        text += " The latencies of " + one.model + " are estimated, not measured.";
    }
    return text;
  }

  // ---- places

  [[nodiscard]] std::string why_place(const PlannedGpulet& gpulet) const {
    std::string text = "It stays where it ran before";
    if (!has_equal(before_, gpulet))
      text = fmt::format("It is placed on {}/{}", gpulet.device.node, gpulet.device.device);
    std::string beside;
    int taken = 0;
    for (const PlannedGpulet* const other : on_device_.at(gpulet.device)) {
      taken += other->size.percent;
      if (other == &gpulet) continue;
      beside += fmt::format("{}{} ({})", beside.empty() ? "" : ", ", model_names(*other),
                            percent(other->size.percent));
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
    const std::optional<std::uint32_t> model = context_.find_model(unserved.model);
    if (!model) return detail;
    if (context_.device_budget() == 0) {
      detail.cause = UnservedCause::any_device;
    } else if (!is_measured(context_, *model)) {
      detail.cause = UnservedCause::profile;
    } else if (context_.models()[*model]->alone && !serves(plan_, unserved.model)) {
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

  const Plan& plan_;
  const PlanContext context_;
  const ByDevice on_device_;
  const ByDevice before_;  // of the plan in force
};

}  // namespace

std::string_view to_string(UnservedCause cause) {
  constexpr std::array<std::string_view, 7> kNames{"devices", "any_device", "profile", "latency",
                                                   "memory",  "kept_apart", "chance"};
  return kNames.at(static_cast<std::size_t>(cause));
}

Explanation explain(const Plan& plan, const PlanInput& input) {
  return Explainer(plan, input).run();
}

}  // namespace gpulet::schedule
