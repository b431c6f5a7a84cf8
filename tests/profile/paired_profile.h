// A made-up profile with pairs whose slowdowns follow a rule, for tests of what is fitted to them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

struct PairedBatch {
  double batch = 0;
  double share = 0;
  double l2 = 0;
  double dram = 0;
};

// Models m0, m1, ... at batches 1, 4, 16 and sizes 20, 50, 80; every pair whose sizes add up to
// 100.
inline Profile paired_profile(
    int models, const std::function<double(const PairedBatch&, const PairedBatch&)>& slowdown) {
  constexpr std::uint64_t kSeed = 7;
  Random random(kSeed);
  Profile profile;
  profile.name = "paired";
  const std::vector<std::uint32_t> batches{1, 4, 16};
  const std::vector<int> sizes{20, 50, 80};
  std::map<std::pair<std::string, std::pair<std::uint32_t, int>>, PairedBatch> known;
  for (int m = 0; m < models; ++m) {
    std::string name = "m";
    name += std::to_string(m);
    std::vector<LatencySample> latency;
    std::vector<Utilization> utilization;
    for (const int size : sizes) {
      for (const std::uint32_t batch : batches) {
        const PairedBatch solo{.batch = static_cast<double>(batch),
                               .share = size / 100.0,
                               .l2 = random.uniform(),
                               .dram = random.uniform()};
        latency.push_back({batch, Share{size}, 1 + m + batch / solo.share, {}});
        utilization.push_back({batch, Share{size}, solo.l2, solo.dram});
        known[{name, {batch, size}}] = solo;
      }
    }
    profile.models.emplace(name, ModelProfile{LatencyTable::create(std::move(latency)).value(),
                                              std::move(utilization), std::nullopt});
  }
  for (const auto& [self, solo] : known) {
    for (const auto& [other, beside] : known) {
      if (self.second.second + other.second.second != 100) continue;
      const double alone_ms = profile.find(self.first)
                                  ->latency.latency_ms(self.second.first, Share{self.second.second})
                                  .value();
      profile.pairs.push_back({self.first, self.second.first, Share{self.second.second},
                               other.first, other.second.first, Share{other.second.second},
                               alone_ms * slowdown(solo, beside)});
    }
  }
  return profile;
}

// The reference of InterferenceKind::measured, which scans all pairs of the profile: the latency of
// the nearest pair of the same two models over L(b, p) of its own cell alone. The distance is the
// sum of the differences of the logarithms of both batches and both sizes; ties go to the pair that
// is first in the profile. At least 1; exactly 1 without such a pair.
inline double measured_slowdown(const Profile& profile, const CoRunner& self,
                                const CoRunner& other) {
  const auto log_ratio = [](double a, double b) { return std::abs(std::log2(a) - std::log2(b)); };
  const ModelProfile* const alone = profile.find(self.model);
  if (alone == nullptr) return 1;
  double nearest = std::numeric_limits<double>::infinity();
  double slowdown = 1;
  for (const PairSample& pair : profile.pairs) {
    if (pair.model != self.model || pair.other_model != other.model) continue;
    const double away = log_ratio(pair.batch, self.batch) +
                        log_ratio(pair.share.percent, self.share.percent) +
                        log_ratio(pair.other_batch, other.batch) +
                        log_ratio(pair.other_share.percent, other.share.percent);
    if (!(away < nearest)) continue;
    const std::optional<double> latency_ms = alone->latency.latency_ms(pair.batch, pair.share);
    if (!latency_ms) continue;
    nearest = away;
    slowdown = pair.latency_ms / *latency_ms;
  }
  return std::max(slowdown, 1.0);
}

}  // namespace gpulet::profile
