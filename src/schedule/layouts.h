// The ways to divide devices: all layouts of one device, and all combinations of layouts of a
// cluster's devices. Devices of a class are alike, so a combination is a multiset for each class.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "schedule/problem.h"

namespace gpulet::schedule {

// Sizes (indices) of one device's gpulets, largest first.
using Layout = std::vector<std::uint32_t>;

// The layouts to which nothing can be added and of which no part can be enlarged: what any other
// layout serves, one of these serves. Nothing where there are more than `limit`.
[[nodiscard]] std::optional<std::vector<Layout>> maximal_layouts(const DeviceClass& device_class,
                                                                 std::size_t limit);

// One device of a combination.
struct DividedDevice {
  std::uint32_t device_class = 0;
  const Layout* layout = nullptr;
};
using Combination = std::vector<DividedDevice>;

// How many combinations there are of as many devices as may be used; infinity where that is beyond
// a double. `layouts` stands beside the problem's classes.
[[nodiscard]] double count_combinations(const Problem& problem,
                                        const std::vector<std::vector<Layout>>& layouts);

// Calls `visit` for each until it returns true; whether it did.
bool any_combination(const Problem& problem, const std::vector<std::vector<Layout>>& layouts,
                     const std::function<bool(const Combination& combination)>& visit);

}  // namespace gpulet::schedule
