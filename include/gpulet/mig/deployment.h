// Services and the GPU instances that run them: the vocabulary of MIG-serving (sections 3.3 and
// 5.1). A service is a model with a throughput that it must reach; what an instance of each profile
// gives it, within its latency objective, is known beforehand. Plain values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/partition/mig_geometry.h"

namespace gpulet::mig {

struct Service {
  std::string name;
  double need = 0;  // requests per second; finite, above 0
  // The most requests per second that one instance serves within the objective, beside
  // MigGeometry::profiles(); 0 where it serves none (too slow, too little memory).
  std::vector<double> rate_on;

  friend bool operator==(const Service&, const Service&) = default;
};

// What is to be deployed, on devices that are all alike.
struct Task {
  partition::MigGeometry geometry;
  std::vector<Service> services;
};

struct Placed {
  partition::MigInstance instance;
  std::uint32_t service = 0;  // index in Task::services

  friend auto operator<=>(const Placed&, const Placed&) = default;
};

// One device: its instances, by start.
using Configuration = std::vector<Placed>;

struct Deployment {
  std::vector<Configuration> devices;

  friend bool operator==(const Deployment&, const Deployment&) = default;
};

// What the instance gives its service; 0 where the geometry lacks its profile. REQUIRES: the
// service is one of the task's.
[[nodiscard]] double rate_of(const Placed& placed, const Task& task);

// What the deployment gives each service, beside Task::services.
[[nodiscard]] std::vector<double> throughput(const Deployment& deployment, const Task& task);

// What is wrong with it, each in a sentence: an illegal layout, a service that is none or that its
// instance does not serve, a device without instances, a need that is not met. Empty: it is valid.
[[nodiscard]] std::vector<std::string> faults(const Deployment& deployment, const Task& task);

}  // namespace gpulet::mig
