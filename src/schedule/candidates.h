// Where a new gpulet could go, for every policy that divides devices: the sizes that suit a model,
// and the search over open and unopened devices. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/plan_builder.h"

namespace gpulet::schedule {

// Whether gpulets on divided devices would have so many models that finding out how much they slow
// each other down takes seconds. Only whole devices are used then.
[[nodiscard]] bool is_crowded(const PlanContext& context);

// A size (an index) for every class, parallel to the context's classes; empty where the class
// cannot serve the model.
using WantedSizes = std::vector<std::optional<std::uint32_t>>;

// The knee of the rate over the size: the size whose highest rate lies farthest above the straight
// line from nothing to the model's best rate. Depends on the profile and the SLO only.
[[nodiscard]] std::optional<std::uint32_t> knee_size(const PlanContext& context, std::size_t model,
                                                     std::size_t device_class);

// The smallest size whose highest rate is at least `rate`. Empty where no size reaches it.
[[nodiscard]] std::optional<std::uint32_t> required_size(const PlanContext& context,
                                                         std::size_t model,
                                                         std::size_t device_class, double rate);

// Sets, for every class, the smallest size that serves `rate`, or else the one that serves most.
void least_sizes(const PlanContext& context, std::size_t model, double rate, WantedSizes* sizes);

// The first candidate among the open devices with at least the wanted share left: the least share
// first, then in the order in which they were opened. `at` returns the candidate on such a device,
// and must not change the builder. At most `most_tried` devices are tried.
inline constexpr std::size_t kTryAll = std::numeric_limits<std::size_t>::max();
using CandidateAt =
    std::function<std::optional<Candidate>(std::uint32_t device, std::uint32_t wanted)>;
[[nodiscard]] std::optional<Candidate> first_remaining(const PlanBuilder& builder,
                                                       const WantedSizes& wanted,
                                                       const CandidateAt& at,
                                                       std::size_t most_tried = kTryAll);

// Requests per second of the current model in a gpulet of a size of a class.
using RateOfSize = std::function<double(std::size_t device_class, std::uint32_t size)>;

// The smallest remaining share of an open device that holds the wanted size, taken whole where
// no gpulet could use the rest (size_taken). Skips a share whose neighbours leave the model less
// than `least_worthwhile` of the size taken, or nothing.
[[nodiscard]] std::optional<Candidate> best_remaining(PlanBuilder& builder, std::size_t model,
                                                      const WantedSizes& wanted,
                                                      const RateOfSize& least_worthwhile,
                                                      std::size_t most_tried = kTryAll);

// The sizes that are taken of whole devices for these wanted sizes (size_taken).
[[nodiscard]] WantedSizes taken_of_whole(const PlanContext& context, WantedSizes wanted);

// The wanted size on a device to be opened: of the class with the highest rate per percent, where
// the rate is the curve's or, if given, rate_of_size's.
[[nodiscard]] std::optional<Candidate> best_unopened(const PlanBuilder& builder, std::size_t model,
                                                     const WantedSizes& wanted,
                                                     const RateOfSize& rate_of_size = {});

// The remaining share of an open device that serves most of the model, whatever its size; among
// equals, of the device opened first.
[[nodiscard]] std::optional<Candidate> largest_share(PlanBuilder& builder, std::size_t model);

// Gives the rest of the model to the largest spare capacity: of a gpulet, or of a remaining share.
// Returns false where nothing can serve any of it.
bool serve_rest(PlanBuilder& builder, std::size_t model);

// Creates the candidate's gpulet and gives it up to candidate.rate of the model.
std::size_t occupy(PlanBuilder& builder, std::size_t model, const Candidate& candidate);

// Indices of all models by their work; ties by name.
enum class Order { lightest_first, heaviest_first };
[[nodiscard]] std::vector<std::size_t> models_by(const PlanContext& context, Order order,
                                                 double (*work)(const ModelDemand& demand));

// Models by ascending amount, each amount given with the model's index; ties by name.
[[nodiscard]] std::vector<std::size_t> models_by(
    std::vector<std::pair<double, std::size_t>> amounts);

// Indices of all models by descending share that their rate needs; ties by name.
[[nodiscard]] std::vector<std::size_t> models_by_share(const PlanContext& context);

// For models_by.
[[nodiscard]] double rate_of(const ModelDemand& demand);
[[nodiscard]] double rate_times_slo(const ModelDemand& demand);

}  // namespace gpulet::schedule
