// How the objective of an application is divided over its nodes.
//
// A model's need is what the profile says of it: the latency of a batch of four (or its largest, if
// that is smaller) at the middle one of the measured sizes. A step gets kStepAllowance. Along every
// path the allowances come off first; what is left is divided among the path's models in proportion
// to their needs. A node's place in time is set by the longest path through it that has the least
// left for each millisecond of need, nodes in the order in which they run: so the heaviest path is
// divided exactly in proportion, and a light branch beside it gets all the time that the heavy one
// leaves it. Of several profiles those count that measured every model of the application; a
// model's need is then its largest. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

inline constexpr Duration kStepAllowance = std::chrono::milliseconds(2);

struct Stage {
  Duration start{};   // planned, after the request's arrival
  Duration budget{};  // from then on; start + budget is at most the start of what follows
};

struct ObjectiveSplit {
  std::vector<Stage> stages;  // beside the application's nodes
  std::string unmet;          // why no plan can hold the objective; empty: one may
};

// An objective that cannot be met (no profile of all its models; a budget in which a device alone
// cannot serve one request that just missed a batch) gets stages nevertheless. REQUIRES: the models
// that it calls are among `models`.
[[nodiscard]] ObjectiveSplit split_objective(const config::ApplicationConfig& application,
                                             const std::vector<ServedModel>& models,
                                             const profile::ProfileSet& profiles);

}  // namespace gpulet::serve
