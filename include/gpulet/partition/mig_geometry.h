// The GPU instances into which MIG can divide a device. An instance has a number of the device's
// compute slices and covers memory slices from its start on. The profiles and their starts are
// those that the driver reports (`nvidia-smi mig -lgipp`). A set of instances is legal where no two
// share a memory slice; the documented lists of layouts follow from this rule.
//
// A geometry is two words and cheap to copy. Any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"

namespace gpulet::partition {

// A GPU instance, written "3g@4": the number of compute slices, which names its profile, and the
// memory slice at which it starts.
struct MigInstance {
  std::uint32_t slices = 0;
  std::uint32_t start = 0;

  friend constexpr auto operator<=>(const MigInstance&, const MigInstance&) = default;
};

// "3g"
[[nodiscard]] std::string mig_profile_name(std::uint32_t slices);
// "3g@4"
[[nodiscard]] std::string to_string(const MigInstance& instance);
// The slices of "3g"; empty for other texts.
[[nodiscard]] std::optional<std::uint32_t> parse_mig_profile(std::string_view name);

struct MigProfile {
  static constexpr std::size_t kMostStarts = 7;

  std::uint32_t slices = 0;         // compute slices
  std::uint32_t memory_slices = 0;  // covered from the start on
  double memory_mb = 0;             // usable by programs
  std::array<std::uint32_t, kMostStarts> start{};
  std::uint32_t start_count = 0;

  [[nodiscard]] std::span<const std::uint32_t> starts() const {
    return {start.data(), start_count};
  }
};

// The instances of one device, by start.
using MigLayout = std::vector<MigInstance>;

class MigGeometry {
 public:
  // The geometry of a device type. Fails with not_found; the message lists names().
  [[nodiscard]] static Result<MigGeometry> of(std::string_view name);
  [[nodiscard]] static std::vector<std::string_view> names();

  // The same geometry with the rule of early drivers that no 3g may exist beside a 4g (MIG-serving,
  // section 2.1).
  [[nodiscard]] MigGeometry without_3g_beside_4g() const;
  [[nodiscard]] bool allows_3g_beside_4g() const { return allows_3g_beside_4g_; }

  [[nodiscard]] std::string_view name() const;
  // Ascending by slices.
  [[nodiscard]] std::span<const MigProfile> profiles() const;
  // nullptr where the device has no such profile.
  [[nodiscard]] const MigProfile* find(std::uint32_t slices) const;
  [[nodiscard]] std::uint32_t compute_slices() const;
  [[nodiscard]] std::uint32_t memory_slices() const;

  // The nominal share of the device, rounded down: 14, 28, 42, 57 and 100 % for 1g to 7g of seven
  // slices. REQUIRES: slices of a profile.
  [[nodiscard]] Share share_of(std::uint32_t slices) const;
  // The profile with that nominal share; empty where there is none.
  [[nodiscard]] std::optional<std::uint32_t> slices_of(Share share) const;

  // Whether the profile exists and may start there.
  [[nodiscard]] bool exists(const MigInstance& instance) const;
  // Whether both instances can coexist. REQUIRES: exists() for both.
  [[nodiscard]] bool compatible(const MigInstance& one, const MigInstance& other) const;
  // Whether all instances exist and can coexist.
  [[nodiscard]] bool legal(std::span<const MigInstance> instances) const;

  // All layouts to which no instance can be added: 19 for seven slices, 5 for the A30.
  [[nodiscard]] std::vector<MigLayout> maximal_layouts() const;

  friend bool operator==(const MigGeometry&, const MigGeometry&) = default;

 private:
  struct Data;
  static std::span<const Data> all();
  explicit MigGeometry(const Data& data) : data_(&data) {}

  const Data* data_;  // static
  bool allows_3g_beside_4g_ = true;
};

}  // namespace gpulet::partition
