// Maps the MIG devices of a plan to real devices, and the instances on each to starts, so that as
// many running instances as possible stay unchanged. Devices of a class are interchangeable, and so
// are layouts of the same instances: neither choice changes what is served. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gpulet/partition/mig_geometry.h"
#include "schedule/plan_builder.h"

namespace gpulet::schedule {

// An instance without a start: its profile, and a number for the set of its models.
struct InstanceKind {
  std::uint32_t slices = 0;
  std::uint32_t content = 0;

  friend auto operator<=>(const InstanceKind&, const InstanceKind&) = default;
};
using InstanceKinds = std::map<InstanceKind, std::uint32_t>;  // with the number of instances

struct PlacedInstance {
  partition::MigInstance instance;
  std::uint32_t content = 0;

  friend bool operator==(const PlacedInstance&, const PlacedInstance&) = default;
};

// Changes `real` (plan_output.h) for the devices that MIG divides. Returns the instance of each
// gpulet of the builder; empty for gpulets on other devices. REQUIRES: the builder's instances are
// legal on their devices.
[[nodiscard]] std::vector<std::optional<partition::MigInstance>> place_instances(
    const PlanBuilder& builder, std::vector<std::uint32_t>* real);

}  // namespace gpulet::schedule
