// A stage of the exchange (MIG-serving, section 6): what can be created in its place and what can
// go without anything having to stand in for it. Pure.
#pragma once

#include "mig/transition_scene.h"

namespace gpulet::mig {

// Creates everything of `to` whose place is free.
void create_where_free(Scene& scene);

// Lets go, as far as rates allow: first what stands in the way of something, the least needed
// first; then what will not be missed any more; then stand-ins.
void remove_unneeded(Scene& scene);

// Those that are still to be created and stand against something, least work in the way first.
[[nodiscard]] std::vector<Standing> blocked(const Scene& scene);

}  // namespace gpulet::mig
