// Plans made and shown by commands (`schedule`, `optimize`). One thread.
#pragma once

#include <cstddef>

#include "gpulet/core/status.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::tools {

// A plan that passed check(), and how long it took to make.
struct TimedPlan {
  schedule::Plan plan;
  double microseconds = 0;
};

// Fails with internal where the plan breaks the rules.
[[nodiscard]] Result<TimedPlan> make_plan(const schedule::Policy& policy,
                                          const schedule::PlanInput& input);

// What a frontend serves where the demand is more than that plan covers: the shortage is shared
// (schedule/shortage.h). Fails as make_plan().
[[nodiscard]] Result<TimedPlan> share_shortage(const schedule::Policy& policy,
                                               const schedule::PlanInput& input, TimedPlan whole);

// On standard output: a table of gpulets and a summary, or with `json` the document of the
// contract; what is unserved then goes to standard error. `devices`: of the cluster.
void print_plan(const TimedPlan& made, std::size_t devices, bool json);
// The same with one line for devices that are filled alike in place of the table.
void print_fillings(const TimedPlan& made, std::size_t devices, bool json);

}  // namespace gpulet::tools
