// Which real device each MIG-divided device of a draft becomes, and where on it its instances
// begin: so that as much as possible of what runs stays as it is. Devices of a class are alike, and
// so are layouts of the same instances, so neither changes what is served. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/partition/mig_geometry.h"
#include "schedule/draft.h"

namespace gpulet::schedule {

// Changes `real` (placement.h), for devices that are divided by MIG. Returns the instance of each
// of the draft's gpulets; nothing for the others. REQUIRES: what the draft has on a device is legal
// there.
[[nodiscard]] std::vector<std::optional<partition::MigInstance>> place_instances(
    const Draft& draft, std::vector<std::uint32_t>* real);

}  // namespace gpulet::schedule
