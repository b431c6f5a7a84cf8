#include "gpulet/control/pole_placement.h"

#include <cmath>
#include <optional>
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
  constexpr double kRounding = 1e-6;
  return found.stable && found.gain >= kLeastGainMargin - kRounding &&
         found.phase_deg >= kLeastPhaseMarginDeg;
}

constexpr unsigned kDelayPeriods = 1;

double per_lasting_error(const PiGains& gains) { return gains.gain_cores_per_s * (1 - gains.zero); }

// Of all controllers with so large a gain margin where cores that alternate are what makes the loop
// unstable (z = -1), the one with the lowest zero that has a phase margin too: the lower the zero,
// the faster it corrects a lasting error, and the less is its phase margin.
std::optional<PiGains> fastest(const Plant& plant, double gain_margin, double faster_than) {
  constexpr int kZeros = 20;
  for (int at = 0; at < kZeros; ++at) {
    const double zero = static_cast<double>(at) / kZeros;
    const double of_both = 4 / (gain_margin * (1 + zero) * (1 + std::abs(plant.zero)));
    const PiGains gains{of_both / plant.gain_s_per_core, zero, plant.at_cores};
    if (per_lasting_error(gains) <= faster_than) return std::nullopt;
    if (holds(margins(plant, gains, kDelayPeriods))) return gains;
  }
  return std::nullopt;
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
  return PiGains{gain, a, plant.at_cores};
}

Result<PiGains> choose_gains(const Plant& plant, double pole) {
  if (const Status status = valid(plant, pole); !status.ok()) return status;
  Result<PiGains> placed = place_poles(plant, pole);
  if (placed.ok() && holds(margins(plant, placed.value(), kDelayPeriods))) return placed;
  constexpr int kMargins = 18;
  constexpr double kStep = 1.25;  // from each to the next
  std::optional<PiGains> best;
  double margin = kLeastGainMargin;
  for (int tried = 0; tried < kMargins; ++tried, margin *= kStep) {
    const auto gains = fastest(plant, margin, best ? per_lasting_error(*best) : 0);
    if (gains) best = gains;
  }
  if (best) return *best;
  return invalid("no gains have the margins wanted for a plant with that zero", plant.zero);
}

}  // namespace gpulet::control
