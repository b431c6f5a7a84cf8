// MIG's geometry as data: into which GPU instances a device can be divided. An instance has so many
// of the device's compute slices and begins at one of its memory slices; which profiles there are
// and where each may begin is what the driver reports (`nvidia-smi mig -lgipp`). A set of instances
// is legal where no two of them share a memory slice; nothing else is needed, the often quoted
// lists of layouts follow from it.
//
// A geometry is two words, copied freely. Any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"

namespace gpulet::partition {

// One GPU instance, as "3g@4": its compute slices name its profile, its start is on the memory
// slices.
struct MigInstance {
  std::uint32_t slices = 0;
  std::uint32_t start = 0;

  friend constexpr auto operator<=>(const MigInstance&, const MigInstance&) = default;
};

// "3g"
[[nodiscard]] std::string mig_profile_name(std::uint32_t slices);
// "3g@4"
[[nodiscard]] std::string to_string(const MigInstance& instance);
// The slices of "3g"; nothing where it is not written so.
[[nodiscard]] std::optional<std::uint32_t> parse_mig_profile(std::string_view name);

struct MigProfile {
  static constexpr std::size_t kMostStarts = 7;

  std::uint32_t slices = 0;         // of compute
  std::uint32_t memory_slices = 0;  // that it covers from its start on
  double memory_mb = 0;             // that programs can use
  std::array<std::uint32_t, kMostStarts> start{};
  std::uint32_t start_count = 0;

  [[nodiscard]] std::span<const std::uint32_t> starts() const {
    return {start.data(), start_count};
  }
};

// Instances of one device, by start.
using MigLayout = std::vector<MigInstance>;

class MigGeometry {
 public:
  // Of a device type: one of names(). Fails (not_found) with those that there are.
  [[nodiscard]] static Result<MigGeometry> of(std::string_view name);
  [[nodiscard]] static std::vector<std::string_view> names();

  // The same with the rule of MIG-serving (section 2.1) that a 3g cannot stand beside a 4g, which
  // early drivers had.
  [[nodiscard]] MigGeometry without_3g_beside_4g() const;
  [[nodiscard]] bool allows_3g_beside_4g() const { return allows_3g_beside_4g_; }

  [[nodiscard]] std::string_view name() const;
  // Ascending by slices.
  [[nodiscard]] std::span<const MigProfile> profiles() const;
  // nullptr where the device has no such profile.
  [[nodiscard]] const MigProfile* find(std::uint32_t slices) const;
  [[nodiscard]] std::uint32_t compute_slices() const;
  [[nodiscard]] std::uint32_t memory_slices() const;

  // What an instance is called as a share of the device: 14, 28, 42, 57, 100 % for 1g to 7g of
  // seven slices, rounded down. REQUIRES: slices of a profile.
  [[nodiscard]] Share share_of(std::uint32_t slices) const;
  // The profile of that share; nothing where it is none.
  [[nodiscard]] std::optional<std::uint32_t> slices_of(Share share) const;

  // Whether the device has such an instance at all.
  [[nodiscard]] bool exists(const MigInstance& instance) const;
  // Whether both can be there at once. REQUIRES: both exist.
  [[nodiscard]] bool compatible(const MigInstance& one, const MigInstance& other) const;
  // Whether all can be there at once, in any order of creation.
  [[nodiscard]] bool legal(std::span<const MigInstance> instances) const;

  // All layouts to which nothing can be added; 19 for seven slices, 5 for the A30.
  [[nodiscard]] std::vector<MigLayout> maximal_layouts() const;

  friend bool operator==(const MigGeometry&, const MigGeometry&) = default;

 private:
  struct Data;
  static std::span<const Data> all();
  explicit MigGeometry(const Data& data) : data_(&data) {}

  const Data* data_;  // of static storage
  bool allows_3g_beside_4g_ = true;
};

}  // namespace gpulet::partition
