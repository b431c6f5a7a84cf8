// SimulatedDevice: how long a batch takes on a device that is not there. L(b, p) of the device
// type's profile times the slowdown by what runs in the device's other gpulets at that moment. A
// gpulet whose cores are controlled takes what its quota makes of L, whatever runs beside it: what
// shares a CPU under quotas was not measured in pairs.
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::serve {

struct SimulatedBatch {
  std::string model;
  std::uint32_t count = 0;
  Share size;

  friend auto operator<=>(const SimulatedBatch&, const SimulatedBatch&) = default;
};

class SimulatedDevice {
 public:
  // `profiles` may be null: then nothing can be answered. `measured`: the pairs of the profiles,
  // ready to be looked up; null: they are made ready here.
  SimulatedDevice(std::string type, std::shared_ptr<const profile::ProfileSet> profiles,
                  std::shared_ptr<const profile::InterferenceSet> measured = nullptr);

  // Whether a gpulet of that size can run batches of `max_batch` of the model. Fails with invalid,
  // naming what the profile lacks.
  [[nodiscard]] Status can_run(const std::string& model, std::uint32_t count, Share size) const;

  // With several neighbours their excesses add up: pairs are all that was measured. Fails as
  // can_run.
  [[nodiscard]] Result<Duration> latency(const SimulatedBatch& batch,
                                         const std::vector<SimulatedBatch>& beside);
  // Under a quota of so many percent of the device's time, above 0: LatencyTable. Fails as can_run.
  [[nodiscard]] Result<Duration> latency_under_quota(const std::string& model, std::uint32_t count,
                                                     double percent) const;

 private:
  struct Known {
    double alone_ms = 0;
    profile::BatchTraits traits;  // where pairs were measured
  };
  // Fails with invalid where there is no such profile, or the model is not in it.
  [[nodiscard]] Result<const profile::ModelProfile*> profile_of(const std::string& model) const;
  // What the profile says of it, looked up once; null where can_run fails.
  [[nodiscard]] const Known* know(const SimulatedBatch& batch);

  std::string type_;
  std::shared_ptr<const profile::ProfileSet> profiles_;
  const profile::Profile* profile_ = nullptr;  // in profiles_
  std::shared_ptr<const profile::InterferenceSet> measured_set_;
  const profile::InterferenceModel* measured_ = nullptr;  // in measured_set_; null: no pairs
  std::map<SimulatedBatch, Known> known_;
};

}  // namespace gpulet::serve
