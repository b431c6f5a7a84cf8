// A stored profile that is measured again in part. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gpulet/core/share.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// Cells by model.
using CellSet = std::map<std::string, std::set<std::pair<Share, std::uint32_t>>, std::less<>>;

// `stored`, with what `measured` found in its place. Of a model that was measured, cells that are
// not among `asked` stay; a cell that was asked for and not found (its batch takes too long now)
// goes. What else is known of a model stays where the measurement tells nothing of it. All other
// models and all pairs stay. The fit to the pairs is the stored one: refit it where latencies
// changed. REQUIRES: both are of one name.
[[nodiscard]] Profile updated(Profile stored, Profile measured, const CellSet& asked);

}  // namespace gpulet::profile
