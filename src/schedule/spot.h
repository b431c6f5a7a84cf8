// Where a new gpulet could go, for every policy that divides devices: the sizes that a model would
// like to have, and the walk over what remains of open devices in best-fit order. Pure; one thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/draft.h"

namespace gpulet::schedule {

// A gpulet that could be taken, and how much of the model at hand it would serve.
struct Spot : Draft::Spot {
  double rate = 0;  // requests per second
};

// A size (an index) for every class, beside the problem's classes; nothing where the model cannot
// be served there.
using WantedSizes = std::vector<std::optional<std::uint32_t>>;

// The knee of the rate over the size: the size whose highest rate lies farthest above the straight
// line from nothing to the model's best rate. Depends on the profile and the SLO only.
[[nodiscard]] std::optional<std::uint32_t> knee_size(const Problem& problem, std::size_t model,
                                                     std::size_t device_class);

// The smallest size whose own highest rate is at least `rate`; nothing where none is.
[[nodiscard]] std::optional<std::uint32_t> required_size(const Problem& problem, std::size_t model,
                                                         std::size_t device_class, double rate);

// Beside the problem's classes: the smallest size that serves `rate`, or else the one that serves
// the most.
void least_sizes(const Problem& problem, std::size_t model, double rate, WantedSizes* sizes);

// Open devices with at least the wanted share left, the least share first, then in the order in
// which they were opened. Nothing may be changed on the draft during the walk.
class BestFitWalk {
 public:
  // `scratch` is the walk's memory, kept by the caller from one walk to the next.
  using Scratch = std::vector<std::pair<int, std::uint32_t>>;
  BestFitWalk(const Draft& draft, std::span<const std::optional<std::uint32_t>> wanted,
              Scratch* scratch);

  [[nodiscard]] std::optional<std::uint32_t> next();

 private:
  Scratch* left_;  // a heap, least on top
};

// Requests per second of the model at hand in a gpulet of a size of a class.
using RateOfSize = std::function<double(std::size_t device_class, std::uint32_t size)>;

// The smallest remaining share of an open device that holds the wanted size, taken whole where
// nobody could use its rest; passed over where its neighbours leave the model less than
// `least_worthwhile` says of the size taken, or nothing.
[[nodiscard]] std::optional<Spot> best_remaining(Draft& draft, std::size_t model,
                                                 const WantedSizes& wanted,
                                                 const RateOfSize& least_worthwhile,
                                                 BestFitWalk::Scratch* scratch);

// The sizes that are taken of whole devices where these are wanted.
[[nodiscard]] WantedSizes taken_of_whole(const Problem& problem, WantedSizes wanted);

// The wanted size on a device still to be opened: of the class with the highest rate per percent,
// which is the row's or what `rate_of_size` says.
[[nodiscard]] std::optional<Spot> best_unopened(const Draft& draft, std::size_t model,
                                                const WantedSizes& wanted,
                                                const RateOfSize& rate_of_size);
[[nodiscard]] std::optional<Spot> best_unopened(const Draft& draft, std::size_t model,
                                                const WantedSizes& wanted);

// The remaining share of an open device that serves most of the model, whatever its size; of equals
// the device opened first.
[[nodiscard]] std::optional<Spot> largest_share(Draft& draft, std::size_t model);

// Takes the spot for the model, up to spot.rate.
std::size_t occupy(Draft& draft, std::size_t model, const Spot& spot);

// Indices of all models, those with the most to do first (or last); ties by name.
enum class Order { lightest_first, heaviest_first };
[[nodiscard]] std::vector<std::size_t> models_by(const Problem& problem, Order order,
                                                 double (*work)(const ModelDemand& demand));

// Models by rising amount, each given with its index; of equals the first by name.
[[nodiscard]] std::vector<std::size_t> models_by(
    std::vector<std::pair<double, std::size_t>> amounts);

// Indices of all models, those first that need the most share of devices for their rate; ties by
// name.
[[nodiscard]] std::vector<std::size_t> models_by_share(const Problem& problem);

// For models_by.
[[nodiscard]] double rate_of(const ModelDemand& demand);
[[nodiscard]] double rate_times_slo(const ModelDemand& demand);

}  // namespace gpulet::schedule
