// Whether options of a learner are within their ranges. Pure; any thread.
#pragma once

#include "gpulet/core/status.h"
#include "gpulet/train/learner.h"

namespace gpulet::train {

// Fails (invalid), naming the first that is not and its range.
[[nodiscard]] Status check_options(const LearnerOptions& options);

}  // namespace gpulet::train
