// LatencySimulator: the duration of batches on a simulated device. That is L(b, p) of the profile
// of its type, times the slowdown by the batches in its other gpulets at that moment. In a MIG
// instance with several processes, L is the latency while all of them run. Interference
// under CPU quotas was not measured, so for a gpulet with controlled cores it is L at its quota,
// whatever its neighbours run. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

struct SimulatedBatch {
  std::string model;
  std::uint32_t count = 0;
  Share size;
  std::uint32_t processes = 1;  // in its MIG instance

  friend auto operator<=>(const SimulatedBatch&, const SimulatedBatch&) = default;
};

class LatencySimulator {
 public:
  // Without `profiles` every function fails. `interference`: their models of kind
  // combined; null: made here.
  LatencySimulator(std::string type, std::shared_ptr<const ProfileSet> profiles,
                   std::shared_ptr<const InterferenceSet> interference = nullptr);

  // From now on, latencies of latency() are log-normal around those of the profile, with this
  // coefficient of variation; empty: with the profile's, where it has one.
  void vary(std::optional<double> cv, std::uint64_t seed);

  // Fails (invalid) without a latency of the model for a batch of `count` on that share.
  [[nodiscard]] Status can_run(const std::string& model, std::uint32_t count, Share size) const;

  // The slowdowns by several neighbours add up, because only pairs are measured. Fails as can_run.
  [[nodiscard]] Result<Duration> latency(const SimulatedBatch& batch,
                                         const std::vector<SimulatedBatch>& beside);
  // Under a quota of `percent` of the device's time. REQUIRES: percent > 0. Fails as can_run.
  [[nodiscard]] Result<Duration> latency_under_quota(const std::string& model, std::uint32_t count,
                                                     double percent) const;

 private:
  struct Known {
    double alone_ms = 0;
    double cv = 0;
    BatchTraits traits;  // set if there is a model of interference
  };
  // Fails with invalid if there is no profile of the type, or it lacks the model.
  [[nodiscard]] Result<const ModelProfile*> profile_of(const std::string& model) const;
  // Null if can_run() fails.
  [[nodiscard]] const Known* know(const SimulatedBatch& batch);

  std::string type_;
  std::shared_ptr<const ProfileSet> profiles_;
  const Profile* profile_ = nullptr;  // in profiles_
  std::shared_ptr<const InterferenceSet> interference_set_;
  const InterferenceModel* interference_ = nullptr;  // in interference_set_; null: none
  std::map<SimulatedBatch, Known> known_;            // cache
  bool varies_ = false;
  std::optional<double> cv_;  // empty: that of the profile
  Random random_{1};
};

}  // namespace gpulet::profile
