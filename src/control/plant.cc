#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "gpulet/control/node_control.h"

namespace gpulet::control {

// ---- Identification

namespace {

constexpr std::size_t kLeastSamples = 8;

// One equation: change = -k now + k b before + c.
struct Equation {
  double now = 0;     // cores of a sample
  double before = 0;  // cores of the sample before
  double change = 0;  // of the response between them
};

// Eliminates c: subtracts the means.
std::vector<Equation> centred(std::span<const Sample> run) {
  std::vector<Equation> equations;
  Equation mean;
  for (std::size_t at = 1; at < run.size(); ++at) {
    const Equation equation{run[at].cores, run[at - 1].cores,
                            run[at].response_s - run[at - 1].response_s};
    equations.push_back(equation);
    const double part = 1 / static_cast<double>(run.size() - 1);
    mean.now += part * equation.now;
    mean.before += part * equation.before;
    mean.change += part * equation.change;
  }
  for (Equation& equation : equations) {
    equation.now -= mean.now;
    equation.before -= mean.before;
    equation.change -= mean.change;
  }
  return equations;
}

double mean_cores(std::span<const Sample> run) {
  double sum = 0;
  for (const Sample& sample : run) sum += sample.cores;
  return sum / static_cast<double>(run.size());
}

struct Sums {
  double now_now = 0;
  double now_before = 0;
  double before_before = 0;
  double now_change = 0;
  double before_change = 0;
  double change_change = 0;
};

Sums sums(const std::vector<Equation>& equations) {
  Sums total;
  for (const Equation& equation : equations) {
    total.now_now += equation.now * equation.now;
    total.now_before += equation.now * equation.before;
    total.before_before += equation.before * equation.before;
    total.now_change += equation.now * equation.change;
    total.before_change += equation.before * equation.change;
    total.change_change += equation.change * equation.change;
  }
  return total;
}

template <typename... Values>
Status invalid(fmt::format_string<const Values&...> format, const Values&... values) {
  return {StatusCode::invalid, fmt::format(format, values...)};
}

}  // namespace

Result<Identified> identify(std::span<const Sample> run) {
  if (run.size() < kLeastSamples) {
    return invalid("the identification of a plant needs at least {} periods; there were {}",
                   kLeastSamples, run.size());
  }
  const Sums of = sums(centred(run));
  const double determinant = of.now_now * of.before_before - of.now_before * of.now_before;
  constexpr double kOfScale = 1e-9;
  if (!(determinant > kOfScale * of.now_now * of.before_before)) {
    return invalid("the cores must change in steps during the identification of a plant");
  }
  const double of_now =
      (of.now_change * of.before_before - of.before_change * of.now_before) / determinant;
  const double of_before =
      (of.before_change * of.now_now - of.now_change * of.now_before) / determinant;
  const Plant plant{-of_now, of_now == 0 ? 0 : -of_before / of_now, mean_cores(run)};
  if (!(plant.gain_s_per_core > 0) || !(plant.zero < 1)) {
    return invalid(
        "the response time must fall where cores rise; found a gain of {:f} s per core and a zero "
        "at {:f}",
        plant.gain_s_per_core, plant.zero);
  }
  const double accounted = of_now * of.now_change + of_before * of.before_change;
  return Identified{plant, accounted / of.change_change};
}

Plant plant_of_queue(double period_s) { return {period_s / 2, -1, 1}; }

// ---- Margins

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// gain (z - a) (z - b) / ((z - 1)^2 z^delay), times the mean over the window:
// (1 + z^-1 + ... + z^-(window - 1)) / window
struct OpenLoop {
  double gain;
  double a;
  double b;
  unsigned delay_periods;
  unsigned window_periods;

  // `frequency`: in radians per period.
  [[nodiscard]] std::complex<double> at(double frequency) const {
    const std::complex<double> z = std::polar(1.0, frequency);
    return gain * (z - a) * (z - b) / ((z - 1.0) * (z - 1.0)) *
           std::polar(1.0, -frequency * delay_periods) * mean_over_window(frequency);
  }

  [[nodiscard]] std::complex<double> mean_over_window(double frequency) const {
    std::complex<double> sum;
    for (unsigned period = 0; period < window_periods; ++period)
      sum += std::polar(1.0, -frequency * period);
    return sum / static_cast<double>(window_periods);
  }
};

// The characteristic polynomial of the closed loop, lowest power first.
std::vector<double> characteristic(const OpenLoop& loop) {
  const unsigned power = loop.delay_periods + loop.window_periods - 1;
  std::vector<double> polynomial(power + 3, 0.0);
  const double gain = loop.gain / loop.window_periods;
  for (unsigned period = 0; period < loop.window_periods; ++period) {
    polynomial[period] += gain * loop.a * loop.b;
    polynomial[period + 1] -= gain * (loop.a + loop.b);
    polynomial[period + 2] += gain;
  }
  polynomial[power] += 1;
  polynomial[power + 1] -= 2;
  polynomial[power + 2] += 1;
  return polynomial;
}

// Whether all roots are inside the unit circle, by the Schur-Cohn test: the first coefficient must
// be smaller than the last one, also in each polynomial of the reduction.
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

// The smallest factor above 1 that makes the loop unstable. REQUIRES: the loop is stable.
double gain_margin(const OpenLoop& loop) {
  const auto stable_with = [&](double factor) {
    return stable({loop.gain * factor, loop.a, loop.b, loop.delay_periods, loop.window_periods});
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

// The frequency between low and high at which the gain is 1. REQUIRES: the gain is above 1 at
// exactly one end.
double crossing(const OpenLoop& loop, double low, double high) {
  const bool falls = std::abs(loop.at(low)) > 1;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    ((std::abs(loop.at(middle)) > 1) == falls ? low : high) = middle;
  }
  return low;
}

// The minimum phase and delay margins over all frequencies at which the gain is 1.
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

Margins margins(const Plant& plant, const PiGains& gains, unsigned delay_periods,
                unsigned window_periods) {
  const OpenLoop loop{plant.gain_s_per_core * gains.gain_cores_per_s, gains.zero, plant.zero,
                      delay_periods, window_periods};
  if (!stable(loop)) return {};
  Margins found{true, gain_margin(loop), kInfinite, kInfinite};
  add_phase_margins(loop, found);
  return found;
}

// ---- Gains

namespace {

Status valid(const Plant& plant, double pole) {
  if (!(plant.gain_s_per_core > 0) || !std::isfinite(plant.gain_s_per_core)) {
    return invalid("the gain of a plant must be above 0 s per core; was {:f}",
                   plant.gain_s_per_core);
  }
  if (!(plant.zero < 1) || !std::isfinite(plant.zero)) {
    return invalid("the zero of a plant must be below 1; was {:f}", plant.zero);
  }
  if (!(pole >= 0) || !(pole < 1))
    return invalid("a pole must be at least 0 and below 1; was {:f}", pole);
  return {};
}

bool sufficient(const Margins& found) {
  constexpr double kRounding = 1e-6;
  return found.stable && found.gain >= kLeastGainMargin - kRounding &&
         found.phase_deg >= kLeastPhaseMarginDeg;
}

constexpr unsigned kDelayPeriods = 1;

double response_to_lasting_error(const PiGains& gains) {
  return gains.gain_cores_per_s * (1 - gains.zero);
}

// Considers the controllers with the given gain margin at z = -1, where alternating cores make the
// loop of a window of one period unstable. Returns the one with the lowest zero that also has the
// phase margin: a lower zero corrects a lasting error faster and has a smaller phase margin.
std::optional<PiGains> fastest(const Plant& plant, double gain_margin, double faster_than,
                               unsigned window_periods) {
  constexpr int kZeros = 20;
  for (int at = 0; at < kZeros; ++at) {
    // A long window needs slower controllers, whose zeros are nearer to 1.
    const double zero = static_cast<double>(at) / kZeros / window_periods +
                        (1 - 1 / static_cast<double>(window_periods));
    const double of_both = 4 / (gain_margin * (1 + zero) * (1 + std::abs(plant.zero)));
    const PiGains gains{of_both / plant.gain_s_per_core, zero, plant.at_cores};
    if (response_to_lasting_error(gains) <= faster_than) return std::nullopt;
    if (sufficient(margins(plant, gains, kDelayPeriods, window_periods))) return gains;
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
    return invalid(
        "no positive gain places the poles of a plant with a zero at {:f} there; the pole must be "
        "above 2 * zero - 1; was {:f}",
        b, pole);
  }
  const double a = ((2 - b) * pole - b) / denominator;
  if (std::abs(b - a) < kNone) {
    return invalid(
        "the pole must differ from the plant's zero, which would require an infinite gain; was "
        "{:f}",
        pole);
  }
  const double gain = 4 * (a - 1) * (b - 1) / (plant.gain_s_per_core * (b - a) * (b - a));
  return PiGains{gain, a, plant.at_cores};
}

Result<PiGains> choose_gains(const Plant& plant, double pole, unsigned window_periods) {
  if (const Status status = valid(plant, pole); !status.ok()) return status;
  Result<PiGains> placed = place_poles(plant, pole);
  if (placed.ok() && sufficient(margins(plant, placed.value(), kDelayPeriods, window_periods)))
    return placed;
  constexpr int kMargins = 18;
  constexpr double kStep = 1.25;  // factor between candidates
  std::optional<PiGains> best;
  double margin = kLeastGainMargin;
  for (int tried = 0; tried < kMargins; ++tried, margin *= kStep) {
    const auto gains =
        fastest(plant, margin, best ? response_to_lasting_error(*best) : 0, window_periods);
    if (gains) best = gains;
  }
  if (best) return *best;
  return invalid("no gains have the required margins for a plant with that zero; was {:f}",
                 plant.zero);
}

}  // namespace gpulet::control
