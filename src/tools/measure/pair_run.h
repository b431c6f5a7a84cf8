// Measures the interference between batches that run side by side on one device, each in a gpulet
// of its own, through the proxy program and partitions that serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/pair_plan.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

struct PairRunOptions {
  const profile::Profile& profile;  // must outlive the run
  std::vector<config::ModelConfig> models;
  ProxyPrograms proxies;
  std::vector<PairGroup> groups;
  std::uint64_t seed = 1;  // of the order of the pairs
  Duration per_run =
      std::chrono::milliseconds(500);  // for each of the three measurements of a pair
  Duration budget = std::chrono::minutes(10);
  std::size_t loads_at_once = 1;
};

struct PairRun {
  std::vector<profile::PairSample> pairs;  // both directions, each once
  std::size_t measured = 0;                // pairs of batches
  // The median of solo time / solo time in the profile: 1 if the machine is as fast as then.
  std::optional<double> drift;
  std::vector<Status> failures;  // of gpulets and pairs; each names its models
};

// Called from time to time with the result so far, and before a signal ends the run: an interrupted
// run keeps what it has measured.
using StorePairs = std::function<void(const PairRun& so_far)>;

// Every gpulet's process is started once and stays loaded, as far as the device has room
// (plan_rounds()). For each pair, one batch runs alone, then the other, then both together, back to
// back with two in flight. The slowdown is the sustained time together divided by the time alone
// just before, and the reported latency is that of the profile times the slowdown, so a machine
// that is faster or slower than when its profile was measured does not distort it. Prints each pair
// with both slowdowns on `progress`. Fails with cancelled after a signal; other failures are in
// PairRun::failures. Blocking; one thread.
[[nodiscard]] Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                                            std::ostream& progress, const StorePairs& store);

}  // namespace gpulet::tools
