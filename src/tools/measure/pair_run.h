// Measures the interference between batches that run side by side on one device of this machine,
// each in a gpulet of its own, through the proxy program and partitions that serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

// A gpulet with one model.
struct PairSide {
  std::string model;
  Share share;

  friend auto operator<=>(const PairSide&, const PairSide&) = default;
};

// Two gpulets that fit on one device, and the pairs of batches to measure. The profile has the solo
// latency of each batch.
struct PairGroup {
  PairSide first;
  PairSide second;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> batches;  // in this order

  friend bool operator==(const PairGroup&, const PairGroup&) = default;
};

struct PairChoice {
  std::vector<std::string> models;
  std::set<std::uint32_t> batches;  // empty: all in the profile
  std::set<Share> sizes;            // empty: all in the profile
  std::uint64_t seed = 1;
};

// Every pair of sides once, including a model beside itself, with every pair of their batches. The
// order is random but fixed by the seed, so that a run that stops early has a fair sample. Pure.
[[nodiscard]] std::vector<PairGroup> plan_pairs(const profile::Profile& profile,
                                                const PairChoice& choice);

struct PairRunOptions {
  const profile::Profile& profile;  // must outlive the run
  std::vector<config::ModelConfig> models;
  ProxyPrograms proxies;
  std::vector<PairGroup> groups;  // in this order, until the budget is used up
  Duration per_run =
      std::chrono::milliseconds(500);  // for each of the three measurements of a pair
  Duration budget = std::chrono::minutes(10);
};

struct PairRun {
  std::vector<profile::PairSample> pairs;  // both directions, each once
  std::size_t planned = 0;                 // pairs of batches in all groups
  std::size_t measured = 0;
  // The median of solo time / solo time in the profile: 1 if the machine is as fast as then.
  std::optional<double> drift;
  std::vector<Status> failures;  // of groups; each names its models
};

// For each pair, one batch runs alone, then the other, then both together, back to back with two in
// flight. The slowdown is the sustained time together divided by the time alone just before, and
// the reported latency is that of the profile times the slowdown, so a machine that is faster or
// slower than when its profile was measured does not distort it. Prints each pair with both
// slowdowns on `progress`. Fails with cancelled after a signal; other failures are in
// PairRun::failures. Blocking; one thread.
[[nodiscard]] Result<PairRun> measure_pairs(const PairRunOptions& options, MeasuredDevice& device,
                                            std::ostream& progress);

}  // namespace gpulet::tools
