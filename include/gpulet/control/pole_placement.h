// Gains of a PI controller from what was identified of its plant, and how far the loop is from
// being unstable. Source: ROMA, section 4, equations 8, 11 and 12. Pure; any thread.
#pragma once

#include "gpulet/core/status.h"

namespace gpulet::control {

// How the response time (s) follows the cores, once a period, near one operating point:
// -k (z - b) / (z - 1). It falls where cores rise, hence the sign; k > 0.
struct Plant {
  double gain_s_per_core = 0;  // k
  double zero = 0;             // b, below 1
  // Where the gain was found; it is inversely proportional to the cores (plant_of_queue()). 0: it
  // is taken to be the same everywhere.
  double at_cores = 0;

  friend bool operator==(const Plant&, const Plant&) = default;
};

// K (z - a) / (z - 1), from response time minus set point (s) to cores. The values here are those
// that ROMA's authors found by hand (section 5); docs/control.md says what margins they have.
struct PiGains {
  double gain_cores_per_s = 0.15;  // K
  double zero = 0.11;              // a
  double at_cores = 0;             // Plant::at_cores: the gain grows with the cores from there

  friend bool operator==(const PiGains&, const PiGains&) = default;
};

// Both poles of the closed loop at `pole` (0 <= pole < 1), as if cores did what they do in the very
// period that asks for them. Fails with invalid where the plant's gain is not above 0, its zero not
// below 1, or no positive gain puts the poles there.
[[nodiscard]] Result<PiGains> place_poles(const Plant& plant, double pole);

// Of the open loop, with so many periods of delay between asking for cores and seeing what they do.
// An infinite margin: nothing of the kind makes it unstable. Without a stable closed loop all are
// 0.
struct Margins {
  bool stable = false;       // the closed loop
  double gain = 0;           // the plant's gain may be so many times larger
  double phase_deg = 0;      // at the frequency where the open loop's gain is 1
  double delay_periods = 0;  // that the phase margin is worth
};
[[nodiscard]] Margins margins(const Plant& plant, const PiGains& gains, unsigned delay_periods);

// What choose_gains() leaves for all that a plant is not.
inline constexpr double kLeastGainMargin = 2;
inline constexpr double kLeastPhaseMarginDeg = 35;

// Gains to control with. A response is known when its period is over, so cores act a period after
// what asked for them, and gains that are right without that delay may not be stable with it. Those
// placed at `pole` are taken where the loop with the delay has the margins above; otherwise the
// ones that have them and correct a lasting error the fastest. Fails with invalid as place_poles()
// does for what is no plant and no pole, or where there are none.
[[nodiscard]] Result<PiGains> choose_gains(const Plant& plant, double pole);

}  // namespace gpulet::control
