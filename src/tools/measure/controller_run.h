// Identifies how a model's response time depends on its cores on a CPU device of this machine, for
// the controllers of instances (docs/control.md), through the proxy program and cpu_quota.
// Blocking; one thread.
//
// Requests arrive at 0.6 of the rate that half of the device serves, and are queued. In every
// period the model has other cores: more than it needs if the mean response of the previous period
// was longer than a period, fewer if it was shorter, by varying amounts. So the queue neither runs
// empty, where more cores have hardly any effect, nor grows without bound, and every period shows
// the effect of the cores.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/control/node_control.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

struct ControllerRunOptions {
  std::vector<config::ModelConfig> models;
  ProxyPrograms proxies;
  double cores = 1;                           // of the device
  Duration period = std::chrono::seconds(1);  // of control (control::Options::period)
  std::uint32_t periods = 60;                 // to observe
};

struct IdentifiedModel {
  std::string model;
  double rate_rps = 0;  // of arrivals
  std::vector<control::Sample> run;
  control::Identified found;
};

struct ControllerRun {
  std::vector<IdentifiedModel> models;
  std::vector<Status> failures;  // of the other models; each names its model
};

// Prints each model on `progress`. Fails with cancelled only; other failures are in the result.
[[nodiscard]] Result<ControllerRun> identify_controllers(const ControllerRunOptions& options,
                                                         MeasuredDevice& device,
                                                         std::ostream& progress);

}  // namespace gpulet::tools
