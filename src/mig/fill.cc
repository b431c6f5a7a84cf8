#include "mig/fill.h"

#include <algorithm>

namespace gpulet::mig {
namespace {

// What a service lacks, as this device fills.
double lacks(const Problem& problem, const Mix& mix, std::uint32_t service, double rest) {
  for (const Slot& slot : mix.slots()) {
    if (slot.service == service) rest = problem.rest_after(service, rest, problem.rate(slot));
  }
  return rest;
}

}  // namespace

Filled fill(const Problem& problem, const Shape& shape, std::span<const std::uint32_t> services,
            const std::vector<double>& rest, const std::vector<double>& worth) {
  Filled filled;
  for (const std::uint32_t profile : shape.profiles) {
    double most = 0;
    std::uint32_t chosen = 0;
    for (const std::uint32_t service : services) {
      const double rate = problem.rate(service, profile);
      if (rest[service] <= 0 || worth[service] * rate <= most) continue;
      const double lacking = lacks(problem, filled.mix, service, rest[service]);
      const double gain = worth[service] * std::min(rate, lacking);
      if (gain <= most) continue;
      most = gain;
      chosen = service;
    }
    if (most <= 0) continue;
    filled.mix.add({profile, chosen});
    filled.score += most;
  }
  return filled;
}

Filled best_fill(const Problem& problem, std::span<const std::uint32_t> services,
                 const std::vector<double>& rest, const std::vector<double>& worth) {
  Filled best;
  for (const Shape& shape : problem.shapes()) {
    const Filled filled = fill(problem, shape, services, rest, worth);
    if (filled.score > best.score) best = filled;
  }
  return best;
}

}  // namespace gpulet::mig
