// The search behind `ideal`: all layouts of one device, all combinations of layouts of a cluster's
// devices, and a search that fills one combination with the demands. Devices of a class are
// interchangeable, so a combination is a multiset of layouts for each class. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// Sizes (indices) of one device's gpulets, the largest first.
using Layout = std::vector<std::uint32_t>;

// The layouts to which no gpulet can be added and in which none can be enlarged: any
// other layout serves no more than one of these. Empty where there are more than `limit`.
[[nodiscard]] std::optional<std::vector<Layout>> maximal_layouts(const DeviceClass& device_class,
                                                                 std::size_t limit);

// One device of a combination.
struct DividedDevice {
  std::uint32_t device_class = 0;
  const Layout* layout = nullptr;
};
using Combination = std::vector<DividedDevice>;

// The number of combinations of as many devices as the budget allows; infinity where it exceeds a
// double. `layouts` is parallel to the context's classes.
[[nodiscard]] double count_combinations(const PlanContext& context,
                                        const std::vector<std::vector<Layout>>& layouts);

// Calls `visit` for each combination until it returns true. Returns whether it did.
bool any_combination(const PlanContext& context, const std::vector<std::vector<Layout>>& layouts,
                     const std::function<bool(const Combination& combination)>& visit);

struct FillResult {
  PlanBuilder builder;      // serves everything, or the most that was found
  std::uint64_t steps = 0;  // gpulets examined, plus curve lookups for them
  bool complete = false;    // the search ended before its steps did
};

// Places each model in turn in a gpulet where it fits whole, or fills a gpulet and continues with
// the rest: all of these choices, with backtracking, for a few orders of the models, until one
// serves everything or `max_steps` are spent. Tries only one of several equal gpulets. Returns at
// once where the gpulets are too small for the work.
[[nodiscard]] FillResult fill(PlanContext& context, const Combination& combination,
                              std::uint64_t max_steps);

struct SearchLimits {
  std::uint64_t all = 0;   // steps in all combinations together
  std::uint64_t each = 0;  // in one
  // No search where the least work of the demands takes more of the devices' time (0 to 1).
  double most_load = 1;
};
struct Searched {
  std::optional<PlanBuilder> builder;  // empty: nothing serves more than `to_beat` leaves unplaced
  std::string note;                    // why not everything was tried; empty: everything was
};
// Fills all combinations of as many devices as the budget allows, until one serves everything or
// the steps are spent. Tries none where there are too many of them.
[[nodiscard]] Searched search_layouts(PlanContext& context, double to_beat,
                                      const SearchLimits& limits);

}  // namespace gpulet::schedule
