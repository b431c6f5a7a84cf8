// The research library: what papers propose and this project is compared with, or plans with on
// request. Policies: learned placement (InSS), elastic partitioning with InSS's batches, iGniter,
// and MIG-serving's static partitions. A model of interference: InSS's analytical one, `inss`.
//
// A program may be built without the library (the CMake option GPULET_WITH_RESEARCH). This header
// is there all the same: its policies are then refused by name, and its model cannot be fitted. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::research {

// Whether this program has the library.
[[nodiscard]] bool included();

// The policies of the planner and of this library. make() reads the file of "inss:FILE".
[[nodiscard]] schedule::PolicyTable policies();

// Fits the interference model `inss`. Null without the library.
[[nodiscard]] profile::FitPairModel fit_pair_model();

// Relative errors |predicted - measured| / measured latency.
struct ErrorSummary {
  std::size_t count = 0;  // 0: nothing was held out; all values are 0
  double p50 = 0;
  double p90 = 0;
  double worst = 0;
};

// Errors of the model `inss` on samples that it was not fitted to.
struct InssErrors {
  ErrorSummary alone;    // all held-out cells; the next three are its parts
  ErrorSummary batches;  // the batch was not fitted, the size was
  ErrorSummary shares;   // the size was not fitted, the batch was
  ErrorSummary both;     // neither was fitted
  std::map<std::string, ErrorSummary, std::less<>> models;  // alone, by model
  ErrorSummary beside;                                      // held-out pairs
};

struct InssReport {
  InssErrors errors;
  std::string note;  // the coefficients that the profile does not identify; often empty
  // A CSV: every measured latency with the predicted one, and whether it was fitted.
  std::string cells;
};

// Fits the model to the profile, with pairs drawn with `seed`. Fails with not_found without the
// library.
[[nodiscard]] Result<InssReport> inss_report(const profile::Profile& profile, std::uint64_t seed);

}  // namespace gpulet::research
