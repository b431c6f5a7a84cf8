// What a change of plan costs: how many gpulets it creates and retires. Pure.
#pragma once

#include <cstddef>

#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

struct Moves {
  std::size_t kept = 0;  // gpulets that serve on as they are
  std::size_t created = 0;
  std::size_t retired = 0;

  friend bool operator==(const Moves&, const Moves&) = default;
};

// By reconcile()'s rules, with every gpulet of `current` running as it was planned.
[[nodiscard]] Moves count_moves(const Plan& current, const Plan& next);

}  // namespace gpulet::schedule
