// A draft that begins with the plan in force: its gpulets, each with what is still demanded of it.
// A policy that goes on from there changes what must change and leaves the rest where it is, which
// costs no new process. Pure.
#pragma once

#include <optional>

#include "schedule/draft.h"

namespace gpulet::schedule {

// Of the current plan's devices as many as may be used, those with the least to do left out first.
// Gpulets that nobody needs any more, that serve nothing under the present rules, or whose device
// is gone, are left out, and so are those of `cleared`; the others get what their models ask for,
// up to what they hold. REQUIRES: problem.input().current is not null.
[[nodiscard]] Draft seeded_with_current(Problem& problem,
                                        const std::optional<DeviceKey>& cleared = std::nullopt);

}  // namespace gpulet::schedule
