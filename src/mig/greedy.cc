#include "mig/greedy.h"

#include <cstdint>

#include "mig/fill.h"

namespace gpulet::mig {
namespace {

// The services of whose mixtures on one device the best is chosen: two; and beside them all that
// one device would satisfy, since two of these can no longer use a device up (appendix A.1).
Filled best_mixture(const Problem& problem, const std::vector<double>& rest,
                    const std::vector<double>& worth) {
  std::vector<std::uint32_t> lacking, almost_satisfied;
  for (std::uint32_t service = 0; service < problem.services(); ++service) {
    if (rest[service] <= 0) continue;
    const bool almost = rest[service] <= problem.rate_of_device(service);
    (almost ? almost_satisfied : lacking).push_back(service);
  }
  Filled best;
  const auto consider = [&](const std::vector<std::uint32_t>& services) {
    const Filled filled = best_fill(problem, services, rest, worth);
    if (filled.score > best.score) best = filled;
  };
  std::vector<std::uint32_t> mixed = almost_satisfied;
  consider(mixed);
  for (std::size_t one = 0; one < lacking.size(); ++one) {
    mixed.push_back(lacking[one]);
    consider(mixed);
    for (std::size_t other = 0; other < one; ++other) {
      mixed.push_back(lacking[other]);
      consider(mixed);
      mixed.pop_back();
    }
    mixed.pop_back();
  }
  return best;
}

}  // namespace

std::vector<Mix> greedy_mixes(const Problem& problem) {
  std::vector<Mix> devices;
  std::vector<double> rest = problem.needs();
  std::vector<double> worth(problem.services(), 0);
  while (true) {
    // (1 - completion) * utility, for a request per second.
    for (std::size_t service = 0; service < worth.size(); ++service) {
      const double need = problem.need(service);
      worth[service] = need > 0 ? rest[service] / need / need : 0;
    }
    const Filled best = best_mixture(problem, rest, worth);
    if (best.mix.size == 0) return devices;
    problem.serve(best.mix, rest);
    devices.push_back(best.mix);
  }
}

Deployment greedy(const Task& task) {
  const Problem problem(task);
  return problem.place(greedy_mixes(problem));
}

}  // namespace gpulet::mig
