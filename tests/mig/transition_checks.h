// Holds a transition against its contract, with an enumeration of MIG's placements that is told
// apart from the code under test. What is wrong comes back as a sentence; empty: nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpulet/mig/transition.h"

namespace gpulet::mig::testing {

// What every device may hold, by memory slices as bits.
[[nodiscard]] bool is_legal(const TransitionDevice& device,
                            const std::vector<partition::MigInstance>& instances);

// Stage by stage: layouts, what stands there before and after, rates, devices in use.
[[nodiscard]] std::string fault_in_stages(const Transition& transition, const TransitionTask& task);

// Runs the actions, some at once, as their dependencies allow: pick(n), below n, chooses what
// happens next. What is being created or removed takes its place and serves nobody.
[[nodiscard]] std::string fault_in_replay(const Transition& transition, const TransitionTask& task,
                                          const std::function<std::size_t(std::size_t)>& pick);

}  // namespace gpulet::mig::testing
