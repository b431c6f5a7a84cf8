// Which removals must wait for which creations, so that rates hold in whatever order actions run.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mig/transition_goal.h"

namespace gpulet::mig {

// What a stage's creations give each service and its removals take, migrations as what they give
// more than before.
struct RateChange {
  std::vector<double> gained, lost;
};

// For each service the stage up to which all that gives it something must be done before this
// stage's removals take something away; nothing where none needs to be. With that no order can go
// below the least rate: the last stage of any removal done bounds what is lost, and what that
// stage's removals waited for is there.
[[nodiscard]] std::vector<std::optional<std::uint32_t>> stages_needed(
    const Goal& goal, const std::vector<RateChange>& changes, std::uint32_t stage);

}  // namespace gpulet::mig
