// Random latencies with a realistic shape: constant for small batches, then proportional to the
// batch; a larger share reduces them less than proportionally.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/profile/profile.h"

namespace gpulet::bench {

inline profile::LatencyTable generated_table(Random& random) {
  const double launch_ms = 3 + 9 * random.uniform();
  const double per_request_ms = 0.15 + 0.45 * random.uniform();
  std::vector<profile::LatencySample> samples;
  for (const int percent : {20, 40, 50, 60, 80, 100}) {
    for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
      profile::LatencySample& sample = samples.emplace_back();
      sample.batch = batch;
      sample.share = Share{percent};
      sample.latency_ms = std::max(launch_ms, per_request_ms * batch * 100 / percent) + 0.5;
    }
  }
  return profile::LatencyTable::create(samples).value();
}

}  // namespace gpulet::bench
