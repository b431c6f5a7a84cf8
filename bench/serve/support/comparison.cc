#include "bench/serve/support/comparison.h"

#include <algorithm>
#include <cmath>

#include "gpulet/base/random.h"

namespace gpulet::bench {
namespace {

constexpr int kResamples = 200;

struct Figures {
  double p50_ms = 0;
  double p99_ms = 0;
  double violation = 0;
  std::uint64_t offered = 0;
};

double percentile(std::vector<double>& values, std::size_t percent) {
  if (values.empty()) return 0;
  const std::size_t at = (values.size() * percent - 1) / 100;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

Figures figures(const std::vector<const LoadSecond*>& seconds) {
  Figures figures;
  std::vector<double> latencies;
  std::uint64_t violations = 0;
  for (const LoadSecond* const second : seconds) {
    latencies.insert(latencies.end(), second->latencies_ms.begin(), second->latencies_ms.end());
    figures.offered += second->offered;
    violations += second->violations;
  }
  figures.p50_ms = percentile(latencies, 50);
  figures.p99_ms = percentile(latencies, 99);
  if (figures.offered > 0)
    figures.violation = static_cast<double>(violations) / static_cast<double>(figures.offered);
  return figures;
}

double deviation(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  return values.size() < 2 ? 0 : std::sqrt(square / static_cast<double>(values.size() - 1));
}

double chance(double one, double other, double most) {
  return std::min(2 * std::hypot(one, other), most);
}

}  // namespace

std::vector<LoadSecond> seconds_of(const std::vector<Stream>& streams, const TrafficResult& result,
                                   Duration from, Duration until) {
  const auto count = static_cast<std::size_t>(std::max(0.0, to_seconds(until - from)));
  std::vector<LoadSecond> seconds(count);
  for (const Sent& sent : result.requests) {
    if (sent.intended < from) continue;
    const auto index = static_cast<std::size_t>(to_seconds(sent.intended - from));
    if (index >= count) continue;
    LoadSecond& second = seconds[index];
    ++second.offered;
    const bool served = sent.fate == Fate::served;
    if (served) second.latencies_ms.push_back(to_ms(sent.latency()));
    if (!served || sent.latency() > streams[sent.stream].slo) ++second.violations;
  }
  return seconds;
}

LoadFigures figures_of(const std::vector<LoadSecond>& seconds, std::uint64_t seed) {
  std::vector<const LoadSecond*> all;
  for (const LoadSecond& second : seconds) all.push_back(&second);
  const Figures whole = figures(all);
  LoadFigures result{whole.offered, whole.p50_ms, whole.p99_ms, 0, whole.violation, 0};
  if (seconds.empty()) return result;
  Random random(seed);
  std::vector<double> p99s;
  std::vector<double> violations;
  std::vector<const LoadSecond*> drawn(seconds.size());
  for (int i = 0; i < kResamples; ++i) {
    for (const LoadSecond*& one : drawn) one = &seconds[random.below(seconds.size())];
    const Figures again = figures(drawn);
    p99s.push_back(again.p99_ms);
    violations.push_back(again.violation);
  }
  result.p99_error_ms = deviation(p99s);
  result.violation_error = deviation(violations);
  return result;
}

Allowed allowed(const LoadFigures& alone, const LoadFigures& beside) {
  return {kWorseBy * alone.p99_ms + chance(alone.p99_error_ms, beside.p99_error_ms, kMostChance_ms),
          kWorseBy * alone.violation +
              chance(alone.violation_error, beside.violation_error, kMostChance)};
}

}  // namespace gpulet::bench
