// The latencies of the models that `gpulet serve` serves: measured once on this machine, then kept
// in a cache by the content of the file, the tensors and the device. Blocking; one thread.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

// The shares that are measured and offered.
[[nodiscard]] const std::vector<Share>& served_sizes();

struct QuickMeasurement {
  std::vector<config::ModelConfig> models;
  std::string device;                          // as `gpulet profile run --device`
  std::filesystem::path cache;                 // a folder; created if it is missing
  Duration budget = std::chrono::seconds(30);  // of all models together, as far as it suffices
  bool again = false;                          // measures models that are in the cache, too
  ProxyPrograms proxies;
  bool beside_others = false;  // the machine serves meanwhile, and that goes first
};

struct QuickResult {
  profile::Profile profile;  // of the device, with its default name
  // Of the models that are not in the profile; each message names its model.
  std::map<std::string, Status> failures;
};

// Prints progress. Fails with cancelled after a signal, and as open_device(). A cache that cannot
// be written costs a warning only.
[[nodiscard]] Result<QuickResult> measure_quickly(const QuickMeasurement& request,
                                                  std::ostream& progress);

// The folder for the cache of this user: below XDG_CACHE_HOME or ~/.cache, else below the folder
// for temporary files.
[[nodiscard]] std::filesystem::path default_cache();

// An objective that the measured model can keep under load. A request may wait for the batch before
// it and then for its own: so twice the time of a batch of `batch` requests on the whole device,
// with a quarter for everything else, and at least kLeastProposedMs.
struct ProposedObjective {
  double slo_ms = 0;  // two significant digits
  std::uint32_t batch = 0;
  double batch_ms = 0;
};
inline constexpr double kLeastProposedMs = 50;
inline constexpr std::uint32_t kProposedBatch = 4;  // or the largest measured one below it
[[nodiscard]] ProposedObjective propose_objective(const profile::ModelProfile& measured);

// Fails with invalid where no batch keeps the objective: a request that just missed a batch waits
// for it and for its own, so less than twice the time of one request is impossible.
[[nodiscard]] Status check_objective(const profile::ModelProfile& measured, double slo_ms);

}  // namespace gpulet::tools
