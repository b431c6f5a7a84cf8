#include "gpulet/schedule/explanation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "schedule/explain.h"
#include "schedule/problem.h"

namespace gpulet::schedule {
namespace {

constexpr double kNoticeableSlowdown = 1.005;

std::string figure(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value >= 100 ? "%.0f" : "%.3g", value);
  return text.data();
}

std::string percent(double value) { return figure(value) + " %"; }

std::string device_name(const DeviceKey& device) {
  return device.node + "/" + std::to_string(device.device);
}

std::string models_of(const PlannedGpulet& gpulet) {
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

// Of the same size and the same models, on the same device.
bool stands_in(const ByDevice& plan, const PlannedGpulet& gpulet) {
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

// A gpulet's place among the rows of a Problem.
struct Sized {
  std::size_t device_class = 0;
  std::size_t size = 0;  // index into the sizes of the class
};

class Explainer {
 public:
  Explainer(const Plan& plan, const PlanInput& input)
      : plan_(plan),
        problem_(input, Division::either),
        on_device_(by_device(plan)),
        before_(input.current == nullptr ? ByDevice() : by_device(*input.current)) {
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      for (const std::uint32_t device : problem_.classes()[index].devices)
        class_of_.emplace(problem_.devices()[device]->key, index);
    }
  }

  [[nodiscard]] Explanation run() const {
    Explanation explanation;
    explanation.gpulets.reserve(plan_.gpulets.size());
    for (const PlannedGpulet& gpulet : plan_.gpulets)
      explanation.gpulets.push_back(why_size(gpulet) + ' ' + why_place(gpulet));
    for (const Unserved& unserved : plan_.unserved)
      explanation.missing.push_back(missing_place(unserved));
    return explanation;
  }

 private:
  [[nodiscard]] std::optional<std::size_t> model_of(const std::string& name) const {
    const auto& models = problem_.models();
    const auto found = std::lower_bound(
        models.begin(), models.end(), name,
        [](const ModelDemand* demand, const std::string& wanted) { return demand->name < wanted; });
    if (found == models.end() || (*found)->name != name) return std::nullopt;
    return static_cast<std::size_t>(found - models.begin());
  }

  [[nodiscard]] std::optional<Sized> sized(const PlannedGpulet& gpulet) const {
    const auto known = class_of_.find(gpulet.device);
    if (known == class_of_.end()) return std::nullopt;
    const std::vector<int>& sizes = problem_.classes()[known->second].sizes;
    const auto found = std::lower_bound(sizes.begin(), sizes.end(), gpulet.size.percent);
    if (found == sizes.end() || *found != gpulet.size.percent) return std::nullopt;
    return Sized{known->second, static_cast<std::size_t>(found - sizes.begin())};
  }

  // ---- sizes

  [[nodiscard]] std::string why_size(const PlannedGpulet& gpulet) const {
    const std::string size = percent(gpulet.size.percent);
    if (gpulet.service == Service::by_need)
      return "It has the whole device, which takes a request of the model that needs it most.";
    if (gpulet.service == Service::controlled)
      return "Its cores follow its response time, so it has no fixed size.";
    const std::optional<Sized> at = sized(gpulet);
    if (!at) return size + " of the device.";
    return gpulet.assignments.size() == 1 ? why_size_of_one(gpulet, *at)
                                          : why_size_of_many(gpulet, *at);
  }

  [[nodiscard]] std::string why_size_of_one(const PlannedGpulet& gpulet, const Sized& at) const {
    const Assignment& one = gpulet.assignments.front();
    const std::string size = percent(gpulet.size.percent);
    const std::optional<std::size_t> model = model_of(one.model);
    if (!model) return size + " of the device.";
    if (at.size == 0) return size + " is the smallest size of the device.";
    const std::string within = " within " + figure(one.slo_ms) + " ms";
    const int smaller_percent = problem_.classes()[at.device_class].sizes[at.size - 1];
    const std::string smaller = percent(smaller_percent);
    const Row& below = problem_.row(*model, at.device_class, at.size - 1);
    if (below.largest == 0)
      return size + " is the smallest size that runs a batch in time: " + smaller +
             " is too slow for " + figure(one.slo_ms) + " ms.";
    if (below.most_rate < one.rate)
      return size + " is the smallest size that serves " + figure(one.rate) + " requests/s" +
             within + ": " + smaller + " serves " + figure(below.most_rate) + " at most.";
    const Row& row = problem_.row(*model, at.device_class, at.size);
    return size + " serves up to " + figure(row.most_rate) + " requests/s" + within +
           ", more than its " + figure(one.rate) + ": " + smaller + " would serve up to " +
           figure(below.most_rate) + '.';
  }

  [[nodiscard]] std::string why_size_of_many(const PlannedGpulet& gpulet, const Sized& at) const {
    double batches_ms = 0;
    for (const Assignment& one : gpulet.assignments) batches_ms += one.latency_ms;
    std::string text = models_of(gpulet) + " take turns: a batch of each takes " +
                       figure(batches_ms) + " ms of a round of " + figure(gpulet.duty_cycle_ms) +
                       " ms, so that each meets its SLO.";
    if (at.size == 0) return text;
    const std::string smaller = percent(problem_.classes()[at.device_class].sizes[at.size - 1]);
    double busy = 0;
    for (const Assignment& one : gpulet.assignments) {
      const std::optional<std::size_t> model = model_of(one.model);
      if (!model) return text;
      const Row& below = problem_.row(*model, at.device_class, at.size - 1);
      if (below.largest == 0) return text + ' ' + smaller + " is too slow for " + one.model + '.';
      busy += one.rate * below.least_ms / 1000;
    }
    if (busy > 1)
      text += " On " + smaller + " they would need " + percent(100 * busy) + " of the time.";
    return text;
  }

  // ---- places

  [[nodiscard]] std::string why_place(const PlannedGpulet& gpulet) const {
    std::string text;
    if (stands_in(before_, gpulet)) {
      text = "It stays where it ran before";
    } else {
      text = "It is placed on " + device_name(gpulet.device);
    }
    std::string beside;
    int taken = 0;
    for (const PlannedGpulet* const other : on_device_.at(gpulet.device)) {
      taken += other->size.percent;
      if (other == &gpulet) continue;
      beside += (beside.empty() ? "" : ", ") + models_of(*other) + " (" +
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

  // ---- what has no place

  [[nodiscard]] MissingPlace missing_place(const Unserved& unserved) const {
    MissingPlace place{unserved.model, unserved.rate};
    const std::optional<std::size_t> model = model_of(unserved.model);
    if (!model) return place;
    if (problem_.device_budget() == 0) {
      place.lack = Lack::any_device;
    } else if (!is_measured(problem_, *model)) {
      place.lack = Lack::profile;
    } else if (problem_.models()[*model]->alone && !has_place(unserved.model)) {
      place.lack = Lack::kept_apart;
    } else {
      const BestDevice best = best_device(problem_, *model);
      if (best.memory_short) {
        place.lack = Lack::memory;
        place.memory_mb = best.memory_mb;
      } else if (best.where == nullptr) {
        place.lack = Lack::latency;
        const Fastest fastest = fastest_batch(problem_, *model);
        if (fastest.where != nullptr) place.least_slo_ms = 2 * fastest.latency_ms;
      } else {
        place.devices = unserved.rate / best.rate;
      }
    }
    return place;
  }

  [[nodiscard]] bool has_place(const std::string& model) const {
    return std::any_of(plan_.gpulets.begin(), plan_.gpulets.end(), [&](const auto& gpulet) {
      return std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                         [&](const Assignment& one) { return one.model == model; });
    });
  }

  const Plan& plan_;
  const Problem problem_;
  std::map<DeviceKey, std::size_t> class_of_;
  const ByDevice on_device_;
  const ByDevice before_;  // of the plan in force
};

}  // namespace

std::string_view to_string(Lack lack) {
  switch (lack) {
    case Lack::devices:
      return "devices";
    case Lack::any_device:
      return "any_device";
    case Lack::profile:
      return "profile";
    case Lack::latency:
      return "latency";
    case Lack::memory:
      return "memory";
    case Lack::kept_apart:
      return "kept_apart";
  }
  return "devices";
}

Explanation explain(const Plan& plan, const PlanInput& input) {
  return Explainer(plan, input).run();
}

}  // namespace gpulet::schedule
