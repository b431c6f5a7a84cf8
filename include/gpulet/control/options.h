// How executables are controlled where GPUs and CPU cores serve together (docs/control.md). Source:
// ROMA, sections 3 to 5, whose values are the defaults. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "gpulet/core/time.h"

namespace gpulet::control {

// Which model gets a GPU that became free.
enum class GpuRule : std::uint8_t {
  need,         // whose response time is furthest above its set point (ROMA, algorithm 1)
  round_robin,  // models in turn
};

// How many cores an executable asks for.
enum class CoreRule : std::uint8_t {
  feedback,  // a PI controller for each (pi_controller.h)
  steps,     // one more at 0.8 of the objective or above, one less at 0.2 or below
  all,       // the node's cores in equal parts
  least,     // one core of the node in equal parts
};

struct Options {
  GpuRule gpu = GpuRule::need;
  CoreRule cores = CoreRule::feedback;
  double set_point = 0.8;      // alpha: of the objective, 0..1
  double queued_weight = 0.5;  // beta: what waits, against what was answered; 0..1
  double surplus = 0;          // gamma: 0, cores as asked for; 1, all of them are always given
  double gpu_cores = 0;        // of each node, kept for its GPUs
  double least_cores = 0.1;    // of an executable
  // Pole of the closed loop, where a plant was identified (pole_placement.h); 0: fastest, towards
  // 1: slower.
  double pole = 0.5;
  Duration period = std::chrono::seconds(1);
  Duration steps_period = std::chrono::seconds(15);  // of CoreRule::steps
  // The response time that is held: the mean, or this percentile (0.95) of a period's answers.
  std::optional<double> percentile{};
  // A request without a timeout of its own waits no longer.
  Duration patience = std::chrono::seconds(60);
  std::uint64_t seed = 1;  // of the random choices that CPU executables make
  // Policies other than roma: requests that no gpulet can serve in time go to CPU executables.
  bool spill = false;

  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace gpulet::control
