// NodeControl: divides the CPU cores of one node among its instances of models, once a control
// period. Implements all rules of CoreRule. Source: ROMA, sections 3 to 5. Pure: time is an
// argument; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"

namespace gpulet::control {

// ---- plant
//
// Plants and the gains of their PI controllers: identification, pole placement and stability
// margins. Source: ROMA, section 4, equations 6, 8, 11 and 12. Pure; any thread.

// How the response time (s) follows the cores, sampled once a period near an operating point:
// -k (z - b) / (z - 1). The response falls where cores rise, hence the sign; k > 0.
struct Plant {
  double gain_s_per_core = 0;  // k
  double zero = 0;             // b, below 1
  // The cores at which the gain was found. The gain is inversely proportional to the cores
  // (plant_of_queue()). 0: the gain is the same everywhere.
  double at_cores = 0;

  friend bool operator==(const Plant&, const Plant&) = default;
};

// The controller K (z - a) / (z - 1), from response time minus set point (s) to cores. The defaults
// are the hand-tuned values of ROMA (section 5); docs/control.md has their margins.
struct PiGains {
  double gain_cores_per_s = 0.15;  // K
  double zero = 0.11;              // a
  double at_cores = 0;             // Plant::at_cores: the gain is proportional to the cores

  friend bool operator==(const PiGains&, const PiGains&) = default;
};

// ---- Identification

// One control period of a run under constant load.
struct Sample {
  double cores = 0;
  double response_s = 0;  // mean over the responses in the period
};

struct Identified {
  Plant plant;
  double explained = 0;  // R squared of the response's changes, 0..1
};

// Least squares over r(t+1) - r(t) = -k u(t+1) + k b u(t) + c ("fitting measured responses to those
// of the dynamic model"). Fails with invalid for fewer than eight samples, constant cores, or a
// response that does not fall where cores rise.
[[nodiscard]] Result<Identified> identify(std::span<const Sample> run);

// The plant of a queue at its set point, where the completions keep up with the arrivals. Whatever
// the model, one core less increases the wait by period / cores per period. The response time of a
// period is the mean over the period. So half of the increase shows at once, k = period / (2
// cores), and the other half one period later, b = -1. Instances on several nodes that serve one
// queue have this plant together. A GPU that serves a part of the requests lowers the gain by that
// part. (Equation 6 has the whole increase at once, because it derives the response time from the
// queue length in place of measuring it.)
[[nodiscard]] Plant plant_of_queue(double period_s);

// ---- Gains

// Places both poles of the closed loop at `pole` (0 <= pole < 1), for cores that act in the period
// that requests them. Fails with invalid where the plant's gain is not above 0, its zero is not
// below 1, or no positive gain places the poles there.
[[nodiscard]] Result<PiGains> place_poles(const Plant& plant, double pole);

// Stability margins of the open loop with a delay between a request for cores and its effect.
// Infinite where the loop stays stable; all 0 where the closed loop is unstable. `window_periods`:
// the response is the mean over so many periods (Options::window); at least 1.
struct Margins {
  bool stable = false;       // the closed loop
  double gain = 0;           // the factor by which the plant's gain may grow
  double phase_deg = 0;      // at the frequency where the open loop's gain is 1
  double delay_periods = 0;  // the additional delay that uses up the phase margin
};
[[nodiscard]] Margins margins(const Plant& plant, const PiGains& gains, unsigned delay_periods,
                              unsigned window_periods = 1);

// The minimum margins of choose_gains(), for differences between the plant and the real system.
inline constexpr double kLeastGainMargin = 2;
inline constexpr double kLeastPhaseMarginDeg = 35;

// The gains to control with. A response is known at the end of its period, so cores act one period
// after the request, and gains for a loop without this delay may be unstable with it. Returns the
// gains of place_poles() where they have the margins above in the delayed loop, otherwise the gains
// with these margins that correct a lasting error the fastest. Fails with invalid like
// place_poles(), or where no gains have the margins. A long window delays the response further and
// makes the gains smaller. `window_periods`: as in margins().
[[nodiscard]] Result<PiGains> choose_gains(const Plant& plant, double pole,
                                           unsigned window_periods = 1);

// ---- options
//
// Options of the control of CPU instances beside GPUs (docs/control.md). The defaults are those of
// ROMA, sections 3 to 5. Plain values; any thread.

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

// docs/configuration.md says what each is.
struct Options {
  GpuRule gpu = GpuRule::need;
  CoreRule cores = CoreRule::feedback;
  double set_point = 0.8;      // alpha
  double queued_weight = 0.5;  // beta
  double surplus = 0;          // gamma
  double gpu_cores = 0;
  double least_cores = 0.1;
  double pole = 0.5;  // of the closed loop for an identified plant
  Duration period = std::chrono::seconds(1);
  std::optional<Duration> window{};  // empty: the period
  Duration overhead{};
  std::optional<PiGains> gains{};  // empty: those that follow from the plant
  Duration steps_period = std::chrono::seconds(15);
  std::optional<double> percentile{};  // empty: the mean
  Duration patience = std::chrono::seconds(60);
  std::uint64_t seed = 1;
  bool spill = false;
  std::uint32_t requests_at_once = 1;  // at least 1

  friend bool operator==(const Options&, const Options&) = default;
};

// The window as a number of control periods; at least 1.
[[nodiscard]] unsigned window_periods(const Options& options);

// ---- node control

struct CoreBounds {
  double least = 0.1;
  double most = 1;
};

// The cores that one instance requests: a PI controller in velocity form,
// u(t) = u'(t-1) + K (e(t) - a e(t-1)), where u' is the granted number of cores. So bounds and
// contention cause no integrator windup. Source: ROMA, section 4.
class PiController {
 public:
  // REQUIRES: 0 < least <= most.
  PiController(PiGains gains, CoreBounds bounds, double cores);

  // Call it once a period. `error_s`: response time minus set point. Returns the requested cores,
  // within the bounds.
  [[nodiscard]] double request(double error_s);
  // Reports the cores that were granted, which may differ from the request.
  void set_granted(double cores) { cores_ = cores; }

  [[nodiscard]] double cores() const { return cores_; }

 private:
  [[nodiscard]] double gain_cores_per_s() const;

  PiGains gains_;
  CoreBounds bounds_;
  double cores_;
  double last_error_s_ = 0;
};

struct Granted {
  std::vector<double> cores;  // indexed like the requests
  double contention = 0;  // eta: available / requested; above 1 without contention; 0: no request
};

// Divides the available cores (ROMA, algorithm 2). `requested`: cores, each above 0. `available`:
// the node's cores without those reserved for GPUs, above 0. `surplus`: gamma, 0..1.
[[nodiscard]] Granted grant(const std::vector<double>& requested, double available, double surplus);

// A model's process on CPU cores (ROMA: executable).
struct Instance {
  GpuletId id;
  // The plant of its model on this type of device, for choose_gains(). Without it, or without gains
  // for it: plant_of_queue().
  std::optional<Plant> plant;
};

// The measurements of an instance's model.
struct Reading {
  // Over the last window (Options::window). 0: no request was queued or completed.
  double response_s = 0;
  double objective_s = 0;  // the SLA; above 0
  // Accepts requests. An instance that does not, for example during a restart, requests and gets no
  // cores, and keeps its state until it is back.
  bool alive = true;
};

struct Cores {
  double requested = 0;
  double granted = 0;

  friend bool operator==(const Cores&, const Cores&) = default;
};

class NodeControl {
 public:
  // `cores`: all cores of the node's CPU device; above 0.
  NodeControl(const Options& options, double cores);

  // Sets the controlled instances; known ones keep their state. New ones begin with an equal part
  // of the available cores, or of one core under CoreRule::least. Until the next step the sum may
  // exceed the available cores.
  void control(const std::vector<Instance>& instances);

  // Call it once a period (Options::period) with the readings of all instances; an instance without
  // a reading is not alive. Each instance requests at least Options::least_cores, but may be
  // granted less under contention. REQUIRES: time does not go back.
  void step(const std::map<GpuletId, Reading>& readings, Time now);

  // The result of the last step, or the initial cores.
  [[nodiscard]] const std::map<GpuletId, Cores>& cores() const { return cores_; }
  [[nodiscard]] double node_cores() const { return node_cores_; }
  [[nodiscard]] double contention() const { return contention_; }  // Granted::contention

 private:
  struct Controlled {
    PiController controller;
    // For CoreRule::steps, since its last decision: the sum of the response times, and the number
    // of periods that had one.
    double response_s = 0;
    unsigned responses = 0;
  };

  [[nodiscard]] double available() const;
  [[nodiscard]] CoreBounds bounds() const;
  [[nodiscard]] double equal_part(std::size_t instances) const;
  [[nodiscard]] double request(Controlled& instance, const Reading& reading, bool steps_due) const;
  [[nodiscard]] double request_in_steps(Controlled& instance, const Reading& reading,
                                        bool due) const;
  [[nodiscard]] bool steps_due(Time now);

  Options options_;
  double node_cores_;
  double contention_ = 0;
  std::map<GpuletId, Controlled> controlled_;
  std::map<GpuletId, Cores> cores_;
  std::optional<Time> steps_at_;  // next decision of CoreRule::steps
};

}  // namespace gpulet::control
