// How long batches take on a device that a profile simulates. Immutable; any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::tools {

class SimulatedTimes {
 public:
  // Fails as profile::read_profile().
  [[nodiscard]] static Result<std::shared_ptr<const SimulatedTimes>> read(
      const std::filesystem::path& profile);

  [[nodiscard]] const profile::Profile& profile() const { return profile_; }
  // Fails with not_found where the profile has no latency of the batch.
  [[nodiscard]] Result<Duration> alone(const profile::CoRunner& batch) const;
  // The same while the other one runs, too: without interference where the profile has no pairs.
  [[nodiscard]] Result<Duration> beside(const profile::CoRunner& batch,
                                        const profile::CoRunner& other) const;

  explicit SimulatedTimes(profile::Profile profile);
  SimulatedTimes(const SimulatedTimes&) = delete;
  SimulatedTimes& operator=(const SimulatedTimes&) = delete;

 private:
  const profile::Profile profile_;
  std::optional<profile::InterferenceModel> interference_;
};

}  // namespace gpulet::tools
