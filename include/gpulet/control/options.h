// Options of the control of CPU instances beside GPUs (docs/control.md). docs/configuration.md says
// what each is; the defaults are those of ROMA, sections 3 to 5. Plain values; any thread.
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
  double set_point = 0.8;      // alpha
  double queued_weight = 0.5;  // beta
  double surplus = 0;          // gamma
  double gpu_cores = 0;
  double least_cores = 0.1;
  double pole = 0.5;  // of the closed loop for an identified plant (plant.h)
  Duration period = std::chrono::seconds(1);
  std::optional<Duration> window{};  // empty: the period
  Duration overhead{};
  std::optional<PiGains> gains{};  // empty: those that follow from the plant
  Duration steps_period = std::chrono::seconds(15);
  std::optional<double> percentile{};  // empty: the mean
  Duration patience = std::chrono::seconds(60);
  std::uint64_t seed = 1;
  bool spill = false;

  friend bool operator==(const Options&, const Options&) = default;
};

// The window as a number of control periods; at least 1.
[[nodiscard]] unsigned window_periods(const Options& options);

}  // namespace gpulet::control
