// How requests of a model wait: their priority levels, and the queue policy of each level. The
// semantics are those of Triton's schedule policy extension. Values; any thread.
#pragma once

#include <cstdint>
#include <map>

#include "gpulet/core/time.h"

namespace gpulet {

// What becomes of a request that has waited longer than its queue timeout.
enum class TimeoutAction : std::uint8_t {
  reject,  // it is answered too_late
  delay,   // it waits on, behind all requests of the same and of higher levels that are in time
};

struct QueuePolicy {
  TimeoutAction timeout_action = TimeoutAction::reject;
  Duration default_timeout{};           // queue timeout, from arrival; zero: none
  bool allow_timeout_override = false;  // a request may ask for a shorter one
  std::uint32_t max_queue_size = 0;     // requests of the level that wait; 0: no bound of its own

  friend bool operator==(const QueuePolicy&, const QueuePolicy&) = default;
};

inline constexpr std::uint32_t kMostPriorityLevels = 100;

struct QueueRules {
  std::uint32_t priority_levels = 0;  // 0: all requests are of one level; at most 100
  // Of a request that names no level, or one beyond the last; 1 .. priority_levels, 0 without any.
  std::uint32_t default_priority_level = 0;
  QueuePolicy default_policy;
  std::map<std::uint32_t, QueuePolicy> level_policies;  // by level, where it is not the default

  // The level of a request with that priority (0: it names none): 1 is the highest; 0 where there
  // are no levels.
  [[nodiscard]] std::uint32_t level_of(std::uint32_t priority) const {
    return priority == 0 || priority > priority_levels ? default_priority_level : priority;
  }
  [[nodiscard]] const QueuePolicy& policy_of(std::uint32_t level) const {
    const auto found = level_policies.find(level);
    return found == level_policies.end() ? default_policy : found->second;
  }

  friend bool operator==(const QueueRules&, const QueueRules&) = default;
};

}  // namespace gpulet
