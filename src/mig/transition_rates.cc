#include "mig/transition_rates.h"

namespace gpulet::mig {

std::vector<std::optional<std::uint32_t>> stages_needed(const Goal& goal,
                                                        const std::vector<RateChange>& changes,
                                                        std::uint32_t stage) {
  std::vector<double> rates(goal.least.size(), 0);
  for (const Standing& standing : goal.from) {
    for (const Part& part : goal.loads[standing.load].parts) rates[part.service] += part.rate;
  }
  std::vector<std::optional<std::uint32_t>> needed(rates.size());
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const double least = goal.least[service] * (1 - kRateSlack);
    double rate = rates[service];
    for (std::uint32_t done = 0; done <= stage; ++done) rate -= changes[done].lost[service];
    for (std::uint32_t done = 0; done <= stage && rate < least; ++done) {
      rate += changes[done].gained[service];
      needed[service] = done;
    }
  }
  return needed;
}

}  // namespace gpulet::mig
