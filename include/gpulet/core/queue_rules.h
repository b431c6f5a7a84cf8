// The queue of a model: priority levels and the queue policy of each level, with the semantics of
// Triton's schedule policy extension. Values; any thread.
#pragma once

#include <cstdint>
#include <map>

#include "gpulet/base/time.h"

namespace gpulet {

// The handling of a request whose queue timeout expires.
enum class TimeoutAction : std::uint8_t {
  reject,  // it fails with too_late
  delay,   // it moves behind all requests of its level and higher levels that are in time
};

struct QueuePolicy {
  TimeoutAction timeout_action = TimeoutAction::reject;
  Duration default_timeout{};           // counted from arrival; zero: none
  bool allow_timeout_override = false;  // a request may set a shorter one
  std::uint32_t max_queue_size = 0;     // queued requests of the level; 0: no limit

  friend bool operator==(const QueuePolicy&, const QueuePolicy&) = default;
};

inline constexpr std::uint32_t kMostPriorityLevels = 100;

struct QueueRules {
  std::uint32_t priority_levels = 0;  // 0: no levels; at most kMostPriorityLevels
  // For requests without a valid priority. 1 .. priority_levels; 0 without levels.
  std::uint32_t default_priority_level = 0;
  QueuePolicy default_policy;
  std::map<std::uint32_t, QueuePolicy> level_policies;  // by level; others: default_policy

  // The level of a request with this priority (0: not set). 1 is the highest; 0 without levels.
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
