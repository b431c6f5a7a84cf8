// Measures what batches cost each other when they run side by side on one device of this machine,
// each in a gpulet of its own, through the real proxy program and the real partitions.
//
// For each pair, first the one batch runs alone, then the other, then both together, all back to
// back with two in flight. What counts is the slowdown, the sustained time together over the one
// alone a moment before: the latency that is told is the profile's own, times that, so that a
// machine that is faster or slower today than when its profile was measured changes nothing.
// Blocking; one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "tools/measured_device.h"
#include "tools/pair_plan.h"

namespace gpulet::tools {

struct PairRunOptions {
  const profile::Profile& profile;  // must outlive the run
  std::vector<config::ModelConfig> models;
  std::filesystem::path proxy;
  std::vector<PairGroup> groups;  // in the order to be run; when time is up, the rest is left out
  Duration per_run = std::chrono::milliseconds(500);  // of each of the three
  Duration budget = std::chrono::minutes(10);
};

struct PairRun {
  std::vector<profile::PairSample> pairs;  // both directions, each once
  std::size_t planned = 0;                 // pairs of batches that the groups hold
  std::size_t measured = 0;
  // Time alone over what the profile says, the median over all runs: 1 is no drift since then.
  std::optional<double> drift;
  std::vector<Status> failures;  // of groups; each names its models
};

// Tells each pair on `progress`, with both slowdowns. Fails as a whole with cancelled where a
// signal ended it.
[[nodiscard]] Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                                            std::ostream& progress);

}  // namespace gpulet::tools
