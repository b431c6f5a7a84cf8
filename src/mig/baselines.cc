#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpulet/mig/optimise.h"
#include "mig/problem.h"

namespace gpulet::mig {
namespace {

// Instances of that rate that the service needs.
std::size_t instances_for(const Problem& problem, std::uint32_t service, double rate) {
  const double count = problem.need(service) / rate;
  return static_cast<std::size_t>(std::ceil(count * (1 - 1e-10)));
}

// Devices that one service has for itself, all instances of the shape that serve it.
void add_devices_of(const Problem& problem, std::uint32_t service, const Shape& shape,
                    std::vector<Mix>& devices) {
  Mix mix;
  double rate = 0;
  for (const std::uint32_t profile : shape.profiles) {
    if (problem.rate(service, profile) <= 0) continue;
    mix.add({profile, service});
    rate += problem.rate(service, profile);
  }
  devices.insert(devices.end(), instances_for(problem, service, rate), mix);
}

// The first of the profiles, from `from` in steps of `step`, that serves the service.
std::uint32_t first_serving(const Problem& problem, std::uint32_t service, std::size_t from,
                            int step) {
  auto profile = static_cast<int>(from);
  while (problem.rate(service, static_cast<std::size_t>(profile)) <= 0) profile += step;
  return static_cast<std::uint32_t>(profile);
}

// The shape with most instances of the profile, and of those with most of the smallest.
const Shape& shape_of_many(const Problem& problem, std::uint32_t profile) {
  return *std::max_element(problem.shapes().begin(), problem.shapes().end(),
                           [profile](const Shape& one, const Shape& other) {
                             return std::pair(one.count(profile), one.count(0)) <
                                    std::pair(other.count(profile), other.count(0));
                           });
}

// 4-2-1: the shape with most different profiles, and of those with the largest instance.
const Shape& mixed_shape(const Problem& problem) {
  const auto rank = [&problem](const Shape& shape) {
    std::size_t different = 0;
    for (std::uint32_t profile = 0; profile < problem.profiles(); ++profile)
      different += shape.count(profile) > 0 ? 1 : 0;
    return std::pair(different, shape.layout.front().slices);
  };
  return *std::max_element(
      problem.shapes().begin(), problem.shapes().end(),
      [&](const Shape& one, const Shape& other) { return rank(one) < rank(other); });
}

}  // namespace

Deployment whole_devices(const Task& task) {
  const Problem problem(task);
  std::vector<Mix> devices;
  for (std::uint32_t service = 0; service < problem.services(); ++service) {
    if (problem.need(service) <= 0) continue;
    const std::uint32_t profile = first_serving(problem, service, problem.profiles() - 1, -1);
    Mix mix;
    mix.add({profile, service});
    devices.insert(devices.end(), instances_for(problem, service, problem.rate(service, profile)),
                   mix);
  }
  return problem.place(devices);
}

// A service too large for 1g has the smallest instances that serve it, on devices of these alone
// but for 1g in what they leave.
Deployment small_instances(const Task& task) {
  const Problem problem(task);
  std::vector<std::vector<Slot>> waiting(problem.profiles());
  for (std::uint32_t service = 0; service < problem.services(); ++service) {
    if (problem.need(service) <= 0) continue;
    const std::uint32_t profile = first_serving(problem, service, 0, 1);
    waiting[profile].insert(waiting[profile].end(),
                            instances_for(problem, service, problem.rate(service, profile)),
                            {profile, service});
  }
  std::vector<Mix> devices;
  for (auto profile = static_cast<std::uint32_t>(problem.profiles()); profile-- > 0;) {
    while (!waiting[profile].empty()) {
      Mix& mix = devices.emplace_back();
      for (const std::uint32_t other : shape_of_many(problem, profile).profiles) {
        if ((other != profile && other != 0) || waiting[other].empty()) continue;
        mix.add(waiting[other].back());
        waiting[other].pop_back();
      }
    }
  }
  return problem.place(devices);
}

// A service that none of 4g, 2g and 1g serves has whole devices.
Deployment fixed_mix(const Task& task) {
  const Problem problem(task);
  const Shape& mixed = mixed_shape(problem);
  std::vector<Mix> devices;
  for (std::uint32_t service = 0; service < problem.services(); ++service) {
    if (problem.need(service) <= 0) continue;
    const bool serves =
        std::any_of(mixed.profiles.begin(), mixed.profiles.end(),
                    [&](std::uint32_t profile) { return problem.rate(service, profile) > 0; });
    const std::uint32_t largest = first_serving(problem, service, problem.profiles() - 1, -1);
    add_devices_of(problem, service, serves ? mixed : shape_of_many(problem, largest), devices);
  }
  return problem.place(devices);
}

}  // namespace gpulet::mig
