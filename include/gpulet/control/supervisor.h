// What the executables of a node are given of what they ask for. Source: ROMA, algorithm 2. Pure;
// any thread.
#pragma once

#include <vector>

namespace gpulet::control {

struct Granted {
  std::vector<double> cores;  // beside what was asked for
  double contention = 0;      // eta: available / asked; above 1 there is enough. 0: nobody asked
};

// `asked`: cores, each above 0. `available`: the node's without those kept for GPUs, above 0.
// `surplus`: gamma, 0..1.
[[nodiscard]] Granted grant(const std::vector<double>& asked, double available, double surplus);

}  // namespace gpulet::control
