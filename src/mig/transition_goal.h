// What a transition must reach and keep, in a form to plan with: the task's instances as sites and
// loads, told apart into those that stay, go and come. Plain values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpulet/mig/transition.h"

namespace gpulet::mig {

// Rates are sums; what differs by less is rounding.
inline constexpr double kRateSlack = 1e-9;

struct Site {
  std::uint32_t device = 0;
  partition::MigInstance instance;

  friend constexpr auto operator<=>(const Site&, const Site&) = default;
};

// What an instance of that size on a device of that type serves, wherever it stands.
struct Load {
  std::string_view type;
  std::uint32_t slices = 0;
  std::vector<Part> parts;
};

struct Standing {
  Site site;
  std::uint32_t load = 0;  // index in Goal::loads
  bool final = false;      // `to` has it there
  bool stand_in = false;   // neither deployment has it
};

struct Goal {
  const TransitionTask* task = nullptr;
  std::vector<double> least;  // rates below which no service may fall
  std::vector<Load> loads;
  std::vector<Standing> from;           // what stays is final, with the larger of its rates
  std::vector<Standing> to;             // what is to be created
  std::vector<bool> planned;            // devices that `from` or `to` uses
  std::vector<std::uint32_t> on_offer;  // loads that stand-ins may have: each size's best

  [[nodiscard]] const partition::MigGeometry& geometry(std::uint32_t device) const {
    return task->devices[device].geometry;
  }
  [[nodiscard]] bool same_node(std::uint32_t one, std::uint32_t other) const {
    return task->devices[one].node == task->devices[other].node;
  }
  // Bits of the memory slices that an instance there covers.
  [[nodiscard]] std::uint32_t memory_of(const Site& site) const {
    const std::uint32_t slices = geometry(site.device).find(site.instance.slices)->memory_slices;
    return ((1U << slices) - 1U) << site.instance.start;
  }
};

// REQUIRES: a valid task, which outlives the goal.
[[nodiscard]] Goal goal_of(const TransitionTask& task);

// The rate of that service in it; 0 where it has none.
[[nodiscard]] double rate_of(const std::vector<Part>& parts, std::uint32_t service);
[[nodiscard]] bool same_services(const std::vector<Part>& one, const std::vector<Part>& other);
[[nodiscard]] std::vector<double> rates_of(const std::vector<Holding>& holdings,
                                           std::size_t services);
[[nodiscard]] std::size_t devices_of(const std::vector<Holding>& holdings);

// What is wrong with a task: instances that the devices do not have or that overlap, devices and
// services that are none, rates that are no rates.
[[nodiscard]] Status check(const TransitionTask& task);

}  // namespace gpulet::mig
