#include "tools/plan_output.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/shortage.h"
#include "tools/plan_json.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

void print_unserved(const schedule::Plan& plan, std::ostream& out) {
  for (const schedule::Unserved& one : plan.unserved) {
    out << "unserved: " << one.model << ", " << shortest(one.rate, 2)
        << " requests/s: " << one.reason << '\n';
  }
}

std::string device_of(const schedule::PlannedGpulet& gpulet) {
  return gpulet.device.node + "/" + std::to_string(gpulet.device.device);
}

// "40", or "42 3g@4" for a MIG instance.
std::string size_of(const schedule::PlannedGpulet& gpulet) {
  const std::string percent = std::to_string(gpulet.size.percent);
  return gpulet.instance ? percent + " " + to_string(*gpulet.instance) : percent;
}

// "a+b" of models that take turns.
std::string models_of(const schedule::PlannedGpulet& gpulet) {
  if (gpulet.service == schedule::Service::by_need && gpulet.assignments.size() > 1)
    return std::to_string(gpulet.assignments.size()) + " models, whoever needs it most";
  std::string models;
  for (const schedule::Assignment& one : gpulet.assignments)
    models += (models.empty() ? "" : "+") + one.model;
  return models;
}

// An executable promises nothing, so it has one row, without rates and times.
std::vector<std::string> executable_row(const schedule::PlannedGpulet& gpulet) {
  const bool controlled = gpulet.service == schedule::Service::controlled;
  const bool of_one = gpulet.assignments.size() == 1;
  return {device_of(gpulet),
          controlled ? "controlled" : size_of(gpulet),
          "-",
          models_of(gpulet),
          "-",
          of_one ? std::to_string(gpulet.assignments.front().batch) : "-",
          "-",
          of_one ? shortest(gpulet.assignments.front().slo_ms, 2) : "-"};
}

void print_gpulets(const schedule::Plan& plan) {
  using enum Table::Align;
  Table table({{"DEVICE", left},
               {"SIZE %"},
               {"CYCLE ms"},
               {"MODEL", left},
               {"RATE /s"},
               {"BATCH"},
               {"LATENCY ms"},
               {"SLO ms"}});
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.service != schedule::Service::rounds) {
      table.add_row(executable_row(gpulet));
      continue;
    }
    bool first = true;
    for (const schedule::Assignment& one : gpulet.assignments) {
      table.add_row({first ? device_of(gpulet) : "", first ? size_of(gpulet) : "",
                     first ? fixed(gpulet.duty_cycle_ms, 2) : "", one.model, shortest(one.rate, 2),
                     std::to_string(one.batch), fixed(one.latency_ms, 2), shortest(one.slo_ms, 2)});
      first = false;
    }
  }
  if (!plan.gpulets.empty()) std::cout << table.to_string() << '\n';
}

// "4g net_a, 2g net_b, 1g net_b", largest first; processes that share an instance once.
std::string filling_of(const std::vector<const schedule::PlannedGpulet*>& gpulets) {
  std::map<partition::MigInstance, std::string> instances;
  std::vector<std::pair<int, std::string>> parts;
  for (const schedule::PlannedGpulet* gpulet : gpulets) {
    const std::string models = models_of(*gpulet);
    std::string size = std::to_string(gpulet->size.percent) + " %";
    if (gpulet->instance) {
      if (!instances.emplace(*gpulet->instance, models).second) continue;
      size = partition::mig_profile_name(gpulet->instance->slices);
    }
    if (gpulet->service == schedule::Service::controlled) size = "controlled";
    size += ' ';
    size += models;
    parts.emplace_back(-gpulet->size.percent, std::move(size));
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const auto& [percent, part] : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

void print_filling_counts(const schedule::Plan& plan) {
  std::map<schedule::DeviceKey, std::vector<const schedule::PlannedGpulet*>> by_device;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets)
    by_device[gpulet.device].push_back(&gpulet);
  std::map<std::string, std::size_t> counts;
  for (const auto& [device, gpulets] : by_device) ++counts[filling_of(gpulets)];
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  using enum Table::Align;
  Table table({{"DEVICES"}, {"FILLED WITH", left}});
  for (const auto& [filling, count] : order) table.add_row({std::to_string(count), filling});
  if (!order.empty()) std::cout << table.to_string() << '\n';
}

void print_summary(const TimedPlan& made, std::size_t devices) {
  const schedule::Plan& plan = made.plan;
  std::cout << plan.policy << ": " << (plan.schedulable() ? "schedulable" : "not schedulable")
            << ", " << plan.devices_used() << " of " << devices << " devices, planned in "
            << fixed(made.microseconds, 0) << " us\n";
  if (plan.lower_bound) {
    std::cout << "at least " << *plan.lower_bound << " devices are needed for the whole demand";
    if (plan.schedulable()) {
      const std::uint32_t gap = plan.devices_used() - *plan.lower_bound;
      std::cout << (gap == 0 ? ": no plan uses fewer"
                             : ": this plan uses at most " + std::to_string(gap) +
                                   " more than the best could");
    }
    std::cout << '\n';
  }
  print_unserved(plan, std::cout);
  for (const std::string& note : plan.notes) std::cout << "note: " << note << '\n';
}

void print_document(const TimedPlan& made) {
  print_unserved(made.plan, std::cerr);
  std::cout << tools::to_json(made.plan, made.microseconds).dump(2) << '\n';
}

// Every plan is held against the rules before anybody sees it.
Result<TimedPlan> checked(TimedPlan made, const schedule::PlanInput& input) {
  const std::vector<std::string> violations = schedule::check(made.plan, input);
  if (violations.empty()) return made;
  std::string message = "the plan of policy '" + made.plan.policy + "' breaks the rules (a bug):";
  for (const std::string& violation : violations) message += "\n  " + violation;
  return Status(StatusCode::internal, message);
}

}  // namespace

Result<TimedPlan> make_plan(const schedule::Policy& policy, const schedule::PlanInput& input) {
  TimedPlan made;
  const auto begin = std::chrono::steady_clock::now();
  made.plan = policy.plan(input);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  made.microseconds = took.count();
  return checked(std::move(made), input);
}

Result<TimedPlan> share_shortage(const schedule::Policy& policy, const schedule::PlanInput& input,
                                 TimedPlan whole) {
  if (!policy.scales()) return whole;
  whole.plan = schedule::share_shortage(policy, input, std::move(whole.plan));
  return checked(std::move(whole), input);
}

void print_plan(const TimedPlan& made, std::size_t devices, bool json) {
  if (json) return print_document(made);
  print_gpulets(made.plan);
  print_summary(made, devices);
}

void print_fillings(const TimedPlan& made, std::size_t devices, bool json) {
  if (json) return print_document(made);
  print_filling_counts(made.plan);
  print_summary(made, devices);
}

}  // namespace gpulet::tools
