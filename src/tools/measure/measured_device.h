// The device on which a measurement runs, as --device and --partitioning name it: cores of this
// machine's CPU, a GPU, or a device that is simulated from a profile. One thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/drivers.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/scratch_folder.h"

namespace gpulet::tools {

// How long batches take on a device that a profile simulates. Immutable; any thread.
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

// The value of --device.
struct DeviceName {
  std::vector<std::uint32_t> cores;   // of "cpu:0,1"; otherwise empty
  std::string gpu;                    // of "cuda:0": its number, or the beginning of its UUID
  std::filesystem::path simulated{};  // of "simulated:profiles/h200": the folder of the profile

  [[nodiscard]] bool is_gpu() const { return !gpu.empty(); }
};

// A CPU device or a GPU. Fails with invalid; the message names the accepted forms.
[[nodiscard]] Result<DeviceName> parse_device(const std::string& text);
// These, or a simulated device.
[[nodiscard]] Result<DeviceName> parse_measured_device(const std::string& text);

// The default name of the device's profile: "cpu-core", "h200". Fails with invalid, with not_found,
// or with unavailable.
[[nodiscard]] Result<std::string> type_of(const DeviceName& device);

struct MeasuredDevice {
  std::string name;                  // type_of()
  profile::Provenance facts;         // device, machine, driver, partitioning, ...
  std::string gpu;                   // UUID; empty: a CPU device
  std::vector<std::uint32_t> cores;  // of a CPU device
  // The shortest interval over which a share delivers an even rate.
  Duration averaging_block{};
  double steady_spread = 0;     // a median is steady if its spread, as a fraction, is at most this
  bool shared_process = false;  // one process serves all gpulets of the device
  // Gpulets that may be loaded at the same time without an effect on each other while they idle.
  std::size_t most_gpulets = 2;
  std::shared_ptr<const SimulatedTimes> simulated;  // null: a real device
  std::unique_ptr<ScratchFolder> folder;            // of the MPS daemon; outlives the driver
  std::unique_ptr<partition::PartitionDriver> driver;
};

// `priority` of a CPU device's processes. `partitioning` of a GPU, which other devices ignore:
// "mps", with a daemon that ends with the driver, or "green". Fails with invalid, with not_found,
// or with unavailable (no such GPU, no MPS).
[[nodiscard]] Result<MeasuredDevice> open_device(
    const DeviceName& device, const std::string& partitioning,
    partition::CpuPriority priority = partition::CpuPriority::normal);

// The same without a driver, for measurements that start no gpulets. Fails likewise, but for MPS.
[[nodiscard]] Result<MeasuredDevice> find_device(const DeviceName& device);

// Memory that is free for processes of the device now. Empty if it is not known.
[[nodiscard]] std::optional<double> free_memory_mb(const MeasuredDevice& device);

// Holds one share of a device at a time. A driver fixes the share of a gpulet when it grants it, so
// every further share belongs to a new gpulet.
class HeldShare {
 public:
  // `last`: the latest gpulet id of the driver, advanced by every grant.
  HeldShare(partition::PartitionDriver& driver, GpuletId& last) : driver_(driver), last_(last) {}
  ~HeldShare() { driver_.release(gpulet_); }
  HeldShare(const HeldShare&) = delete;
  HeldShare& operator=(const HeldShare&) = delete;

  // Releases the current share first.
  [[nodiscard]] Result<partition::Grant> grant(Share share) {
    return grant({.gpulet = {}, .share = share});
  }
  // Grants a share that adjust() can change.
  [[nodiscard]] Result<partition::Grant> grant_adjustable(Share share) {
    return grant({.gpulet = {}, .share = share, .adjustable = true});
  }
  [[nodiscard]] Status adjust(double cores) { return driver_.adjust(gpulet_, cores); }
  [[nodiscard]] Status attach(pid_t process) { return driver_.attach(gpulet_, process); }
  [[nodiscard]] Status activate() { return driver_.activate(gpulet_); }
  // Implements backend::ProxyCallbacks::end.
  [[nodiscard]] bool end(pid_t process) { return driver_.end(gpulet_, process); }

 private:
  [[nodiscard]] Result<partition::Grant> grant(partition::Claim claim) {
    driver_.release(gpulet_);
    gpulet_ = GpuletId{++last_.value};
    claim.gpulet = gpulet_;
    return driver_.grant(claim);
  }

  partition::PartitionDriver& driver_;
  GpuletId& last_;
  GpuletId gpulet_;
};

}  // namespace gpulet::tools
