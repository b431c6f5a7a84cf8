#include "gpulet/control/pole_placement.h"

#include <cmath>
#include <string>

namespace gpulet::control {
namespace {

Status invalid(const std::string& what, double was) {
  return {StatusCode::invalid, what + "; was " + std::to_string(was)};
}

Status valid(const Plant& plant, double pole) {
  if (!(plant.gain_s_per_core > 0) || !std::isfinite(plant.gain_s_per_core)) {
    return invalid("the gain of a plant must be above 0 s per core", plant.gain_s_per_core);
  }
  if (!(plant.zero < 1) || !std::isfinite(plant.zero)) {
    return invalid("the zero of a plant must be below 1", plant.zero);
  }
  if (!(pole >= 0) || !(pole < 1)) {
    return invalid("a pole must be at least 0 and below 1", pole);
  }
  return {};
}

bool holds(const Margins& found) {
  return found.stable && found.gain >= kLeastGainMargin && found.phase_deg >= kLeastPhaseMarginDeg;
}

}  // namespace

Result<PiGains> place_poles(const Plant& plant, double pole) {
  if (const Status status = valid(plant, pole); !status.ok()) return status;
  const double b = plant.zero;
  const double denominator = pole - 2 * b + 1;
  constexpr double kNone = 1e-9;
  if (denominator < kNone) {
    return invalid("no positive gain puts the poles of a plant with a zero at " +
                       std::to_string(b) + " there: the pole must be above 2 zero - 1",
                   pole);
  }
  const double a = ((2 - b) * pole - b) / denominator;
  if (std::abs(b - a) < kNone) {
    return invalid("the pole must not be where the plant's zero is, which takes an endless gain",
                   pole);
  }
  const double gain = 4 * (a - 1) * (b - 1) / (plant.gain_s_per_core * (b - a) * (b - a));
  return PiGains{gain, a};
}

Result<PiGains> choose_gains(const Plant& plant, double fastest_pole) {
  if (const Status status = valid(plant, fastest_pole); !status.ok()) return status;
  constexpr double kSlower = 0.95;
  constexpr double kSlowest = 1e-4;
  for (double speed = 1 - fastest_pole; speed > kSlowest; speed *= kSlower) {
    const Result<PiGains> gains = place_poles(plant, 1 - speed);
    if (gains.ok() && holds(margins(plant, gains.value(), 1))) return gains;
  }
  return invalid("no pole has margins for a plant with that zero", plant.zero);
}

}  // namespace gpulet::control
