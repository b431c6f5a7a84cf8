// Where on a device its MIG instances begin. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "gpulet/partition/mig_geometry.h"

namespace gpulet::schedule {

// An instance without its place: its profile, and a number for what it holds.
struct InstanceKind {
  std::uint32_t slices = 0;
  std::uint32_t content = 0;

  friend auto operator<=>(const InstanceKind&, const InstanceKind&) = default;
};
using InstanceKinds = std::map<InstanceKind, std::uint32_t>;  // how many of each

struct PlacedInstance {
  partition::MigInstance instance;
  std::uint32_t content = 0;

  friend bool operator==(const PlacedInstance&, const PlacedInstance&) = default;
};

// A legal layout of these instances with as many as possible where `running` has the same.
// REQUIRES: there is a legal one.
[[nodiscard]] std::vector<PlacedInstance> arrange(const partition::MigGeometry& geometry,
                                                  const InstanceKinds& wanted,
                                                  const std::vector<PlacedInstance>& running);

}  // namespace gpulet::schedule
