#include "mig/transition_goal.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace gpulet::mig {
namespace {

Site site_of(const Holding& holding) { return {holding.device, holding.instance}; }

std::uint32_t add_load(Goal& goal, const Holding& holding) {
  goal.loads.push_back(
      {goal.geometry(holding.device).name(), holding.instance.slices, holding.parts});
  return static_cast<std::uint32_t>(goal.loads.size() - 1);
}

// Instances of one size serve a service alike; rates differ only by what a plan asks of them.
void choose_offers(Goal& goal) {
  using Key = std::tuple<std::string_view, std::uint32_t, std::vector<std::uint32_t>>;
  std::map<Key, std::uint32_t> best;
  for (std::uint32_t index = 0; index < goal.loads.size(); ++index) {
    const Load& load = goal.loads[index];
    std::vector<std::uint32_t> services;
    double rate = 0;
    for (const Part& part : load.parts) {
      services.push_back(part.service);
      rate += part.rate;
    }
    const auto [at, is_new] = best.try_emplace({load.type, load.slices, services}, index);
    double best_rate = 0;
    for (const Part& part : goal.loads[at->second].parts) best_rate += part.rate;
    if (rate > best_rate) at->second = index;
  }
  for (const auto& [key, index] : best) goal.on_offer.push_back(index);
}

std::string where(const TransitionTask& task, const Holding& holding) {
  return to_string(holding.instance) + " on device " + std::to_string(holding.device) +
         (holding.device < task.devices.size() ? " of " + task.devices[holding.device].node : "");
}

Status check_parts(const TransitionTask& task, const Holding& holding) {
  const std::string what = where(task, holding);
  if (holding.parts.empty()) return {StatusCode::invalid, what + " serves nothing: leave it out"};
  for (std::size_t at = 0; at < holding.parts.size(); ++at) {
    const Part& part = holding.parts[at];
    if (part.service >= task.services.size()) {
      return {StatusCode::invalid, what + " has service " + std::to_string(part.service) + " of " +
                                       std::to_string(task.services.size()) +
                                       ": name it in services"};
    }
    if (!(part.rate >= 0 && part.rate < 1e18)) {
      return {StatusCode::invalid, what + " gives " + task.services[part.service] + " " +
                                       std::to_string(part.rate) +
                                       " requests/s: a rate is 0 or more and finite"};
    }
    if (at > 0 && holding.parts[at - 1].service >= part.service) {
      return {StatusCode::invalid,
              what + " has its parts in no order: sort them by service, each once"};
    }
  }
  return {};
}

Status check_holdings(const TransitionTask& task, const std::vector<Holding>& holdings) {
  std::vector<std::vector<partition::MigInstance>> layouts(task.devices.size());
  for (const Holding& holding : holdings) {
    if (holding.device >= task.devices.size()) {
      return {StatusCode::invalid, where(task, holding) + ": there are " +
                                       std::to_string(task.devices.size()) + " devices"};
    }
    std::vector<partition::MigInstance>& layout = layouts[holding.device];
    layout.push_back(holding.instance);
    if (!task.devices[holding.device].geometry.legal(layout)) {
      return {StatusCode::invalid, where(task, holding) + " cannot be there beside the others"};
    }
    if (Status status = check_parts(task, holding); !status.ok()) return status;
  }
  return {};
}

}  // namespace

double rate_of(const std::vector<Part>& parts, std::uint32_t service) {
  for (const Part& part : parts) {
    if (part.service == service) return part.rate;
  }
  return 0;
}

bool same_services(const std::vector<Part>& one, const std::vector<Part>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const Part& a, const Part& b) { return a.service == b.service; });
}

std::vector<double> rates_of(const std::vector<Holding>& holdings, std::size_t services) {
  std::vector<double> rates(services, 0);
  for (const Holding& holding : holdings) {
    for (const Part& part : holding.parts) rates[part.service] += part.rate;
  }
  return rates;
}

std::size_t devices_of(const std::vector<Holding>& holdings) {
  std::set<std::uint32_t> devices;
  for (const Holding& holding : holdings) devices.insert(holding.device);
  return devices.size();
}

Goal goal_of(const TransitionTask& task) {
  Goal goal;
  goal.task = &task;
  goal.planned.assign(task.devices.size(), false);
  const std::vector<double> old_need = rates_of(task.from, task.services.size());
  const std::vector<double> new_need = rates_of(task.to, task.services.size());
  for (std::size_t service = 0; service < task.services.size(); ++service)
    goal.least.push_back(std::min(old_need[service], new_need[service]));

  std::map<Site, const Holding*> old;
  for (const Holding& holding : task.from) old[site_of(holding)] = &holding;
  std::set<Site> stays;
  for (const Holding& holding : task.to) {
    goal.planned[holding.device] = true;
    const auto there = old.find(site_of(holding));
    if (there == old.end() || !same_services(there->second->parts, holding.parts)) {
      goal.to.push_back({site_of(holding), add_load(goal, holding), true, false});
      continue;
    }
    Holding both = holding;
    for (std::size_t at = 0; at < both.parts.size(); ++at)
      both.parts[at].rate = std::max(both.parts[at].rate, there->second->parts[at].rate);
    goal.from.push_back({site_of(both), add_load(goal, both), true, false});
    stays.insert(site_of(both));
  }
  for (const Holding& holding : task.from) {
    goal.planned[holding.device] = true;
    if (stays.contains(site_of(holding))) continue;
    goal.from.push_back({site_of(holding), add_load(goal, holding), false, false});
  }
  const auto by_site = [](const Standing& a, const Standing& b) { return a.site < b.site; };
  std::sort(goal.from.begin(), goal.from.end(), by_site);
  std::sort(goal.to.begin(), goal.to.end(), by_site);
  choose_offers(goal);
  return goal;
}

Status check(const TransitionTask& task) {
  if (Status status = check_holdings(task, task.from); !status.ok()) return status.within("from");
  if (Status status = check_holdings(task, task.to); !status.ok()) return status.within("to");
  return {};
}

}  // namespace gpulet::mig
