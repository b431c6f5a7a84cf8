// One device for what services lack: the instances of a layout, largest first, each for the service
// that gains most by it. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mig/problem.h"

namespace gpulet::mig {

struct Filled {
  Mix mix;
  double score = 0;  // sum over its instances of worth * what the service had lacked of their rate
};

// Instances that no service gains by stay out. Of services that gain the same the first in
// `services` has it. `rest`: what each service lacks; `worth`: of a request per second of each.
[[nodiscard]] Filled fill(const Problem& problem, const Shape& shape,
                          std::span<const std::uint32_t> services, const std::vector<double>& rest,
                          const std::vector<double>& worth);

// Of all shapes that with the highest score.
[[nodiscard]] Filled best_fill(const Problem& problem, std::span<const std::uint32_t> services,
                               const std::vector<double>& rest, const std::vector<double>& worth);

}  // namespace gpulet::mig
