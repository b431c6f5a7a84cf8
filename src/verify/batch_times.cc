#include "verify/batch_times.h"

#include <algorithm>
#include <cstddef>

namespace gpulet::verify {

std::optional<BatchTimes> batch_times(const schedule::Assignment& assignment, Share size,
                                      std::uint32_t processes,
                                      const std::optional<double>& asked_margin,
                                      const profile::Profile& profile) {
  const profile::ModelProfile* const measured = profile.find(assignment.model);
  if (measured == nullptr || assignment.batch == 0 || !(assignment.slo_ms > 0)) return std::nullopt;
  const profile::LatencyTable& table = measured->latency_of(processes);
  const double factor = assignment.slowdown * schedule::margin_of(asked_margin, table);
  BatchTimes times;
  for (std::uint32_t n = 1; n <= assignment.batch; ++n) {
    const std::optional<double> alone_ms = table.latency_ms(n, size);
    if (!alone_ms) return std::nullopt;
    times.alone_ms.push_back(*alone_ms);
    times.expected_ms.push_back(*alone_ms * factor);
    times.cv.push_back(table.cv(n, size).value_or(0));
  }
  // Where times fall as a batch grows, the dispatcher still has more time for the smaller one.
  for (std::size_t n = assignment.batch - 1; n > 0; --n)
    times.expected_ms[n - 1] = std::min(times.expected_ms[n - 1], times.expected_ms[n]);
  return times;
}

}  // namespace gpulet::verify
