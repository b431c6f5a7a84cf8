#include "gpulet/control/supervisor.h"

#include <numeric>

namespace gpulet::control {

Granted grant(const std::vector<double>& asked, double available, double surplus) {
  const double demand = std::accumulate(asked.begin(), asked.end(), 0.0);
  if (demand <= 0) return Granted{asked, 0};
  const double contention = available / demand;
  const double scale = contention < 1 ? contention : 1 + surplus * (contention - 1);
  Granted granted{asked, contention};
  for (double& cores : granted.cores) cores *= scale;
  return granted;
}

}  // namespace gpulet::control
