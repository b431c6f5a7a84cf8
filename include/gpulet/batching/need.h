// Which model gets a device that became free: the one whose response time is furthest above its set
// point. Source: ROMA, algorithm 1. (The paper's listing lacks beta and alpha; its text has them.)
// Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "gpulet/core/time.h"

namespace gpulet::batching {

// A model as it is when a device becomes free.
struct ModelNeed {
  std::size_t queued = 0;            // requests
  Duration mean_waited{};            // by them, so far
  Duration device_time{};            // of one request on the device, as profiled
  std::optional<Duration> response;  // mean of what was answered of late; empty: nothing was
  Duration objective{};              // above zero
};

struct NeedRule {
  double set_point = 0.8;      // alpha: of the objective
  double queued_weight = 0.5;  // beta: what waits, against what was answered
};

// How far above its set point, as a part of it: 0 where it is not. What waits counts with the time
// that it has waited and that those before it will take on the device; where nothing was answered
// of late, it alone counts.
[[nodiscard]] double need_of(const ModelNeed& model, const NeedRule& rule);

// The neediest of those that have requests; among equals the longest queue, then the first after
// `last` in turn. Empty where nobody waits.
[[nodiscard]] std::optional<std::size_t> neediest(std::span<const ModelNeed> models,
                                                  const NeedRule& rule, std::size_t last);

// The first after `last` in turn that has requests.
[[nodiscard]] std::optional<std::size_t> next_in_turn(std::span<const ModelNeed> models,
                                                      std::size_t last);

}  // namespace gpulet::batching
