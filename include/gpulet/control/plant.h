// Plants and the gains of their PI controllers: identification, pole placement and stability
// margins. Source: ROMA, section 4, equations 6, 8, 11 and 12. Pure; any thread.
#pragma once

#include <span>

#include "gpulet/base/status.h"

namespace gpulet::control {

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

}  // namespace gpulet::control
