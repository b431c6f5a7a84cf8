// Finds out how a model's response time follows its cores on a CPU device of this machine, for the
// controllers of executables (docs/control.md), through the real proxy program and cpu_quota.
//
// Requests arrive as far apart as half of the device serves 0.6 of, and wait in line. Every period
// the model is given other cores: more than that takes where the mean response of the period before
// was above a period, less where it was below, by amounts in turn. So the queue neither runs empty,
// where more cores do hardly anything, nor grows without end, and what the cores do shows in each
// period. Blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/control/identify.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "tools/measured_device.h"

namespace gpulet::tools {

struct ControllerRunOptions {
  std::vector<config::ModelConfig> models;
  std::filesystem::path proxy;
  double cores = 1;                           // of the device
  Duration period = std::chrono::seconds(1);  // of control: control::Options::period
  std::uint32_t periods = 60;                 // that are looked at
};

struct IdentifiedModel {
  std::string model;
  double rate_rps = 0;  // of the requests
  std::vector<control::Sample> run;
  control::Identified found;
};

struct ControllerRun {
  std::vector<IdentifiedModel> models;
  std::vector<Status> failures;  // of the others; each names its model
};

// Tells each model on `progress`. Fails as a whole with cancelled where a signal ended it.
[[nodiscard]] Result<ControllerRun> identify_controllers(const ControllerRunOptions& options,
                                                         MeasuredDevice& device,
                                                         std::ostream& progress);

}  // namespace gpulet::tools
