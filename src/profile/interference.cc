#include "gpulet/profile/interference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace gpulet::profile {
namespace {

double log_ratio(double a, double b) { return std::abs(std::log2(a / b)); }

double distance(const PairSample& pair, const CoRunner& self, const CoRunner& other) {
  return log_ratio(pair.batch, self.batch) + log_ratio(pair.share.percent, self.share.percent) +
         log_ratio(pair.other_batch, other.batch) +
         log_ratio(pair.other_share.percent, other.share.percent);
}

}  // namespace

double measured_slowdown(const Profile& profile, const CoRunner& self, const CoRunner& other) {
  const ModelProfile* alone = profile.find(self.model);
  if (alone == nullptr) return 1;
  double nearest = std::numeric_limits<double>::infinity();
  double slowdown = 1;
  for (const PairSample& pair : profile.pairs) {
    if (pair.model != self.model || pair.other_model != other.model) continue;
    const double away = distance(pair, self, other);
    if (!(away < nearest)) continue;
    const std::optional<double> latency_ms = alone->latency.latency_ms(pair.batch, pair.share);
    if (!latency_ms) continue;
    nearest = away;
    slowdown = pair.latency_ms / *latency_ms;
  }
  return std::max(slowdown, 1.0);
}

}  // namespace gpulet::profile
