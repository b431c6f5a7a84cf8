// Checks a transition against its contract, with an enumeration of MIG's placements that is
// independent of the code under test. Each check returns the first fault as a sentence, or an empty
// string.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpulet/schedule/mig.h"

namespace gpulet::schedule::mig::testing {

// Whether the device can have these instances at once, by bit masks of memory slices.
[[nodiscard]] bool is_legal(const TransitionDevice& device,
                            const std::vector<partition::MigInstance>& instances);

// Checks each stage: layouts, the instances before and after, rates, devices in use.
[[nodiscard]] std::string fault_in_stages(const Transition& transition, const TransitionTask& task);

// Runs the actions concurrently, as their dependencies allow: pick(n) < n chooses the next step. An
// instance that is being created or removed occupies its slot and serves nothing.
[[nodiscard]] std::string fault_in_replay(const Transition& transition, const TransitionTask& task,
                                          const std::function<std::size_t(std::size_t)>& pick);

}  // namespace gpulet::schedule::mig::testing
