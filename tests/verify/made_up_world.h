// Made-up devices and models for tests of what plans promise: shapes that no measurement of this
// repository has. A part of a batch's time shrinks with the share, a part grows with the batch;
// objectives are from tight to loose, rates from one to thousands; times may vary by chance, and
// neighbours may slow each other down in ways that the planner knows a third of.
#pragma once

#include <cstdint>
#include <memory>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule::testing {

struct WorldShape {
  std::uint32_t most_models = 12;
  std::uint32_t most_devices = 8;  // of each type
  bool varies = true;              // some worlds have times that vary, up to a third of the mean
  bool neighbours = true;          // some have neighbours that slow each other down
  bool mig = false;                // half of the types are divided by MIG
};

struct MadeUpWorld {
  std::shared_ptr<profile::ProfileSet> profiles;  // everything about the devices
  std::shared_ptr<profile::ProfileSet> known;     // with a third of the pairs, and fitted to them
  Cluster cluster;
  std::vector<ModelDemand> demands;
};

// A model that violates 1 % of its objectives in the long run exceeds this part of so many
// independent requests in one of a thousand runs.
[[nodiscard]] double most_violations_by_chance(std::uint64_t requests);

// Depends on the arguments only.
[[nodiscard]] MadeUpWorld made_up_world(std::uint64_t number, const WorldShape& shape);

}  // namespace gpulet::schedule::testing
