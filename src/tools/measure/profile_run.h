// Measures the latencies L(batch, share) of models on a device of this machine, through the proxy
// program and partitions that serve. Blocking; one thread.
//
// One process serves all cells of a model whose shares have the same environment: on a CPU those
// with the same thread count, under MPS those of one size. Under MPS the processes of all sizes but
// the first load at the same time, and idle until their turn. After a warm-up, the batches of a
// cell run back to back with two in flight, as in serving, for a given time and at least three
// batches, then up to five times as long until the median is steady. The latency of the cell is the
// sustained time per batch, which reflects the rate that the share really delivers; p99 is that of
// the intervals between responses. The batches of a size grow until one takes too long.
//
// A cell is in doubt if its median is not steady, if others used the cores, or if it contradicts
// its neighbours (measurement_quality.h). Such cells are measured again, at most twice and only
// while their number falls; the better measurement counts.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

struct ProfileRunOptions {
  std::vector<config::ModelConfig> models;
  ProxyPrograms proxies;
  std::vector<Share> sizes;            // not empty
  std::vector<std::uint32_t> batches;  // not empty, ascending; batches above a model's max_batch
                                       // are skipped, except the first
  Duration per_cell = std::chrono::seconds(1);
  Duration longest_batch = std::chrono::seconds(2);
  // After so long, only the smallest batch of each further size is measured, and no cell again.
  // Zero: no limit.
  Duration budget{};  // of one model
};

struct ProfileRun {
  std::map<std::string, profile::ModelProfile, std::less<>> models;
  profile::CellSet requested;    // of these models, measured or not
  std::vector<Status> failures;  // of the other models; each names its model
  // "libtorch": the loaded version; "sms_by_size": as reported by the device; clocks.
  profile::Provenance facts;
};

// Called after each model, measured or not, with the result so far: an interrupted run loses only
// the model that it was at.
using AfterModel = std::function<void(const std::string& model, const ProfileRun& so_far)>;

// Prints each cell, with a '~' if in doubt. Fails with cancelled; other failures: in the result.
[[nodiscard]] Result<ProfileRun> measure(const ProfileRunOptions& options, MeasuredDevice& device,
                                         std::ostream& progress,
                                         const AfterModel& after_model = {});

}  // namespace gpulet::tools
