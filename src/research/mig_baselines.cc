#include "research/mig_baselines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "research/policies.h"
#include "schedule/mig/deployment_context.h"
#include "schedule/policies.h"

namespace gpulet::research {

using namespace schedule::mig;  // NOLINT(google-build-using-namespace)

namespace {

// The number of instances of that rate that the service needs.
std::size_t instances_for(const DeploymentContext& context, std::uint32_t service, double rate) {
  const double count = context.need(service) / rate;
  return static_cast<std::size_t>(std::ceil(count * (1 - 1e-10)));
}

// Adds devices of that shape for one service alone, without the instances that cannot serve it.
void add_devices_of(const DeploymentContext& context, std::uint32_t service,
                    const LayoutShape& shape, std::vector<InstanceMix>& devices) {
  InstanceMix mix;
  double rate = 0;
  for (const std::uint32_t profile : shape.profiles) {
    if (context.rate(service, profile) <= 0) continue;
    mix.add({profile, service});
    rate += context.rate(service, profile);
  }
  devices.insert(devices.end(), instances_for(context, service, rate), mix);
}

// The first profile that serves the service, searched from `from` in steps of `step`.
std::uint32_t first_serving(const DeploymentContext& context, std::uint32_t service,
                            std::size_t from, int step) {
  auto profile = static_cast<int>(from);
  while (context.rate(service, static_cast<std::size_t>(profile)) <= 0) profile += step;
  return static_cast<std::uint32_t>(profile);
}

// The shape with the most instances of the profile; among equals the one with the most 1g.
const LayoutShape& shape_of_many(const DeploymentContext& context, std::uint32_t profile) {
  return *std::max_element(context.shapes().begin(), context.shapes().end(),
                           [profile](const LayoutShape& one, const LayoutShape& other) {
                             return std::pair(one.count(profile), one.count(0)) <
                                    std::pair(other.count(profile), other.count(0));
                           });
}

// 4-2-1: the shape with the most distinct profiles; among equals the one with the largest instance.
const LayoutShape& mixed_shape(const DeploymentContext& context) {
  const auto rank = [&context](const LayoutShape& shape) {
    std::size_t different = 0;
    for (std::uint32_t profile = 0; profile < context.profiles(); ++profile)
      different += shape.count(profile) > 0 ? 1 : 0;
    return std::pair(different, shape.layout.front().slices);
  };
  return *std::max_element(
      context.shapes().begin(), context.shapes().end(),
      [&](const LayoutShape& one, const LayoutShape& other) { return rank(one) < rank(other); });
}

}  // namespace

Deployment whole_devices(const DeploymentTask& task) {
  const DeploymentContext context(task);
  std::vector<InstanceMix> devices;
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    if (context.need(service) <= 0) continue;
    const std::uint32_t profile = first_serving(context, service, context.profiles() - 1, -1);
    InstanceMix mix;
    mix.add({profile, service});
    devices.insert(devices.end(), instances_for(context, service, context.rate(service, profile)),
                   mix);
  }
  return context.place(devices);
}

// A service that is too large for 1g gets the smallest profile that serves it. Each device has
// instances of one profile, and 1g in the slices that are left.
Deployment small_instances(const DeploymentTask& task) {
  const DeploymentContext context(task);
  std::vector<std::vector<UnplacedInstance>> waiting(context.profiles());
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    if (context.need(service) <= 0) continue;
    const std::uint32_t profile = first_serving(context, service, 0, 1);
    waiting[profile].insert(waiting[profile].end(),
                            instances_for(context, service, context.rate(service, profile)),
                            {profile, service});
  }
  std::vector<InstanceMix> devices;
  for (auto profile = static_cast<std::uint32_t>(context.profiles()); profile-- > 0;) {
    while (!waiting[profile].empty()) {
      InstanceMix& mix = devices.emplace_back();
      for (const std::uint32_t other : shape_of_many(context, profile).profiles) {
        if ((other != profile && other != 0) || waiting[other].empty()) continue;
        mix.add(waiting[other].back());
        waiting[other].pop_back();
      }
    }
  }
  return context.place(devices);
}

// A service that none of 4g, 2g and 1g can serve gets whole devices.
Deployment fixed_mix(const DeploymentTask& task) {
  const DeploymentContext context(task);
  const LayoutShape& mixed = mixed_shape(context);
  std::vector<InstanceMix> devices;
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    if (context.need(service) <= 0) continue;
    const bool serves =
        std::any_of(mixed.profiles.begin(), mixed.profiles.end(),
                    [&](std::uint32_t profile) { return context.rate(service, profile) > 0; });
    const std::uint32_t largest = first_serving(context, service, context.profiles() - 1, -1);
    add_devices_of(context, service, serves ? mixed : shape_of_many(context, largest), devices);
  }
  return context.place(devices);
}

// ---- the policies

schedule::Plan MigMix::plan(const schedule::PlanInput& input) {
  return schedule::plan_mig(input, fixed_mix);
}

schedule::Plan MigSmall::plan(const schedule::PlanInput& input) {
  return schedule::plan_mig(input, small_instances);
}

schedule::Plan MigWhole::plan(const schedule::PlanInput& input) {
  return schedule::plan_mig(input, whole_devices);
}

}  // namespace gpulet::research
