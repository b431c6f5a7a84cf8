// How far the analytical model of InSS is off where it was not fitted. Errors are |predicted -
// measured latency| over the measured one. Pure; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "gpulet/profile/inss_model.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

struct ErrorSummary {
  std::size_t count = 0;  // 0: nothing was held out, and the others are 0 too
  double p50 = 0;
  double p90 = 0;
  double worst = 0;
};

struct InssErrors {
  ErrorSummary alone;    // all held-out cells; the three below are its parts
  ErrorSummary batches;  // a batch that was not fitted, at a size that was
  ErrorSummary shares;   // the other way round
  ErrorSummary both;     // neither was
  std::map<std::string, ErrorSummary, std::less<>> models;  // alone, by served model
  // Held-out pairs, from the model's own latency alone: no table is asked.
  ErrorSummary beside;
};

// REQUIRES: the model was fitted to this profile.
[[nodiscard]] InssErrors held_out_errors(const InssModel& model, const Profile& profile);

}  // namespace gpulet::profile
