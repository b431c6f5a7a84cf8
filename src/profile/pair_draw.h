// Which measured pairs the models of interference are fitted to. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/profile/inss_model.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// The pair's latency over that of its batch alone. Empty where the profile does not answer both
// batches alone: such a pair cannot be used.
[[nodiscard]] std::optional<double> pair_slowdown(const Profile& profile, const PairSample& pair);

// The numbers below `count`, shuffled with the seed.
[[nodiscard]] std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed);

// fit_inss with the first kInssPairs pairs of each model among `drawn`, which can be used all.
[[nodiscard]] InssModel fit_inss_to(const Profile& profile,
                                    std::span<const PairSample* const> drawn);

}  // namespace gpulet::profile
