#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "gpulet/control/pole_placement.h"

namespace gpulet::control {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// gain (z - a) (z - b) / ((z - 1)^2 z^delay)
struct OpenLoop {
  double gain;
  double a;
  double b;
  unsigned delay_periods;

  // At the frequency, in radians a period.
  [[nodiscard]] std::complex<double> at(double frequency) const {
    const std::complex<double> z = std::polar(1.0, frequency);
    return gain * (z - a) * (z - b) / ((z - 1.0) * (z - 1.0)) *
           std::polar(1.0, -frequency * delay_periods);
  }
};

// The polynomial of the closed loop's poles, lowest power first.
std::vector<double> characteristic(const OpenLoop& loop) {
  std::vector<double> polynomial(loop.delay_periods + 3, 0.0);
  polynomial[0] = loop.gain * loop.a * loop.b;
  polynomial[1] = -loop.gain * (loop.a + loop.b);
  polynomial[2] = loop.gain;
  polynomial[loop.delay_periods] += 1;
  polynomial[loop.delay_periods + 1] -= 2;
  polynomial[loop.delay_periods + 2] += 1;
  return polynomial;
}

// All roots inside the unit circle, by Schur and Cohn: the first coefficient is smaller than the
// last one, and so it is for the polynomial of one power less that the two directions leave.
bool inside_unit_circle(std::vector<double> polynomial) {
  while (polynomial.size() > 1) {
    const double first = polynomial.front();
    const double last = polynomial.back();
    if (!(std::abs(first) < std::abs(last))) return false;
    const std::vector<double> reversed(polynomial.rbegin(), polynomial.rend());
    for (std::size_t at = 0; at < polynomial.size(); ++at) {
      polynomial[at] -= first / last * reversed[at];
    }
    polynomial.erase(polynomial.begin());
  }
  return true;
}

bool stable(const OpenLoop& loop) { return inside_unit_circle(characteristic(loop)); }

constexpr int kHalvings = 40;

// The smallest factor above 1 that makes it unstable. REQUIRES: it is stable.
double gain_margin(const OpenLoop& loop) {
  const auto stable_with = [&](double factor) {
    return stable({loop.gain * factor, loop.a, loop.b, loop.delay_periods});
  };
  constexpr double kStep = 1.2;
  constexpr double kMost = 1e3;
  double low = 1;
  while (low < kMost && stable_with(low * kStep)) low *= kStep;
  if (low >= kMost) return kInfinite;
  double high = low * kStep;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    (stable_with(middle) ? low : high) = middle;
  }
  return low;
}

// The frequency in between at which its gain is 1. REQUIRES: it is above 1 at one end only.
double crossing(const OpenLoop& loop, double low, double high) {
  const bool falls = std::abs(loop.at(low)) > 1;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    ((std::abs(loop.at(middle)) > 1) == falls ? low : high) = middle;
  }
  return low;
}

// The least phase and delay margins of all frequencies at which the loop's gain is 1.
void add_phase_margins(const OpenLoop& loop, Margins& found) {
  constexpr int kFrequencies = 150;
  constexpr double kLowest = 1e-3;
  const double step = std::pow(std::numbers::pi / kLowest, 1.0 / kFrequencies);
  double low = kLowest;
  for (int index = 0; index < kFrequencies; ++index, low *= step) {
    const double high = low * step;
    if ((std::abs(loop.at(low)) > 1) == (std::abs(loop.at(high)) > 1)) continue;
    const double frequency = crossing(loop, low, high);
    const double phase = std::numbers::pi + std::arg(loop.at(frequency));
    found.phase_deg = std::min(found.phase_deg, phase * 180 / std::numbers::pi);
    found.delay_periods = std::min(found.delay_periods, phase / frequency);
  }
}

}  // namespace

Margins margins(const Plant& plant, const PiGains& gains, unsigned delay_periods) {
  const OpenLoop loop{plant.gain_s_per_core * gains.gain_cores_per_s, gains.zero, plant.zero,
                      delay_periods};
  if (!stable(loop)) return {};
  Margins found{true, gain_margin(loop), kInfinite, kInfinite};
  add_phase_margins(loop, found);
  return found;
}

}  // namespace gpulet::control
