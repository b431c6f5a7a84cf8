// Options of the control of CPU instances beside GPUs (docs/control.md). The defaults are those of
// ROMA, sections 3 to 5. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "gpulet/base/time.h"
#include "gpulet/control/plant.h"

namespace gpulet::control {

// The model that gets a free GPU.
enum class GpuRule : std::uint8_t {
  need,         // the model whose response time is furthest above its set point (ROMA, algorithm 1)
  round_robin,  // each model in turn
};

// The number of cores that an instance requests.
enum class CoreRule : std::uint8_t {
  feedback,  // by a PI controller (node_control.h)
  steps,     // one more at 0.8 of the objective or above, one less at 0.2 or below
  all,       // an equal part of the node's cores
  least,     // an equal part of one core
};

struct Options {
  GpuRule gpu = GpuRule::need;
  CoreRule cores = CoreRule::feedback;
  double set_point = 0.8;      // alpha: part of the objective, 0..1
  double queued_weight = 0.5;  // beta: weight of queued against completed requests, 0..1
  double surplus = 0;          // gamma: 0 grants the requested cores, 1 always grants all cores
  double gpu_cores = 0;        // cores of each node that are reserved for its GPUs
  double least_cores = 0.1;    // minimum request of an instance
  // Pole of the closed loop for an identified plant (plant.h). 0: fastest; towards 1: slower.
  double pole = 0.5;
  Duration period = std::chrono::seconds(1);
  // The responses that count: those of the last `window` (w in equation 1), rounded up to whole
  // periods. Empty: those of the last period.
  std::optional<Duration> window{};
  // The part of a response time that clients see and the frontend does not measure, such as a
  // network in front of it. Added to the measured times, so that the objective is the clients'.
  Duration overhead{};
  // In place of gains that follow from the plant.
  std::optional<PiGains> gains{};
  Duration steps_period = std::chrono::seconds(15);  // for CoreRule::steps
  // The controlled response time: the mean, or this percentile (0.95) of a window's responses.
  std::optional<double> percentile{};
  // The longest wait of a request without a timeout of its own.
  Duration patience = std::chrono::seconds(60);
  std::uint64_t seed = 1;  // for the random choices of CPU instances
  // For policies other than roma: requests that no gpulet can serve in time go to CPU instances.
  bool spill = false;

  friend bool operator==(const Options&, const Options&) = default;
};

// The window as a number of control periods; at least 1.
[[nodiscard]] unsigned window_periods(const Options& options);

}  // namespace gpulet::control
