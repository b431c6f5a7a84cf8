// Exclusions: nodes and devices that take no new gpulets for a while, because the last ones failed
// there and the machine is to blame, or may be. The pause doubles with each failure in a row, until
// a gpulet becomes ready there after a pause. What serves on an excluded device goes on. Pure; one
// thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"

namespace gpulet::serve {

struct ExclusionOptions {
  Duration first = std::chrono::seconds(5);  // the first pause
  Duration longest = std::chrono::minutes(5);
  // A backend that leaves so soon after it joined, so many times in a row, is excluded as a node.
  Duration short_stay = std::chrono::seconds(10);
  std::uint32_t short_stays = 3;
};

// One of them as the status tells it.
struct Exclusion {
  std::string node;
  std::optional<std::uint32_t> device;  // nothing: the whole node
  FailureCause cause = FailureCause::unknown;
  Status error;                // the last failure, in the words of who found it
  std::uint32_t failures = 0;  // in a row
  Time until{};                // then it is tried again
};

class Exclusions {
 public:
  explicit Exclusions(const ExclusionOptions& options) : options_(options) {}

  // A gpulet failed on the device. Counts against the node where the cause is one of the node's,
  // else against the device. `next_gpulet`: ids of gpulets that are made from now on are no less.
  // Failures of gpulets that were made before the last failure count as the same one.
  void failed(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause, Status error,
              GpuletId next_gpulet, Time now);
  // A gpulet became ready on the device: where the pause is over, what failed there is forgotten.
  void ready(const schedule::DeviceKey& device, GpuletId gpulet);
  // It turned out that a model was to blame for what failed on the node for no known cause.
  void absolve(const std::string& node);

  // A backend came and went. `anew`: its process has just started, so that whatever was wrong may
  // have been mended; what it was excluded for is forgotten, unless it keeps leaving.
  void joined(const std::string& node, bool anew, Time now);
  void left(const std::string& node, const Status& reason, Time now);

  // Whether new gpulets may be made on the device.
  [[nodiscard]] bool allows(const schedule::DeviceKey& device) const;
  // Why not. Null where they may.
  [[nodiscard]] const Exclusion* of(const schedule::DeviceKey& device) const;
  // Those in force, by node, then device; the whole node first.
  [[nodiscard]] std::vector<Exclusion> in_force() const;
  // Ends the pauses that are over. Returns what may be tried again, in words.
  std::vector<std::string> expire(Time now);

 private:
  using Key = std::pair<std::string, std::optional<std::uint32_t>>;
  struct Entry {
    Exclusion told;
    GpuletId next_gpulet;   // those below were made before the last failure
    bool in_force = false;  // else the pause is over, and the next failure doubles it
  };
  struct Stay {
    Time joined{};
    std::uint32_t short_ones = 0;  // in a row
  };
  void count(const Key& key, FailureCause cause, Status error, GpuletId next_gpulet, Time now);
  [[nodiscard]] Duration pause(std::uint32_t failures) const;

  ExclusionOptions options_;
  std::map<Key, Entry> entries_;
  std::map<std::string, Stay> stays_;  // by node
};

}  // namespace gpulet::serve
