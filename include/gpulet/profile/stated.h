// The figures that a models file states in the entry of a model (config::Measurement). Pure; any
// thread.
#pragma once

#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// The latencies of one process and the memory; the other figures have no place in an entry.
// REQUIRES: the profile has the model, or all of its buckets.
[[nodiscard]] config::Measurement measurement_of(const Profile& measured,
                                                 const config::ModelConfig& model);

// Puts the figures of the entry in place of those that the profiles have for the model. A type of
// device without a profile gets one. REQUIRES: the entry was read from a models file.
void state_figures(const config::ModelConfig& entry, ProfileSet& profiles);

}  // namespace gpulet::profile
