// Elastic partitioning: gpulet (ATC 2022) section 4.3, algorithm 1, without interference. Models in
// ascending order of rate * SLO; each takes gpulets of its ideal size, min(p_eff, p_req), by best
// fit over what remains of the devices, until its rate has a place; a gpulet taken is first tried
// together with those allocated before (temporal merging).
//
// Choices where the paper leaves one:
//  - p_eff is called both "the highest performance per resource" and "the knee" of rate over size.
//    On real profiles these are two sizes. The knee, here the size whose rate lies highest above
//    the straight line from nothing to the best rate, is tried first.
//  - p_req is the smallest size whose own highest rate covers what is left of the demand.
//  - The order and p_eff decide more scenarios than anything else, and no choice of them is always
//    right. Where the paper's leaves demand without a place, the same algorithm runs with the other
//    reading of p_eff and with the heaviest model first (the order of the gpu-let preprint), and
//    last with whole devices as the only size. The first plan that serves everything is taken,
//    else the one that serves the most.
//  - Best fit: the smallest remaining share that holds the ideal size. Only where no open device
//    has one is another opened; among types, the one with the highest rate per percent. A share
//    whose rest nobody could use is taken whole, as the paper's second half of a device is.
//  - A new gpulet and one that is there already merge at the larger of their two sizes. Among those
//    that hold, the fullest one afterwards is taken. All duty cycles are tried (round.h), not one.
//  - What is left when no remaining share is large enough goes to whoever has room, largest room
//    first: the slack of gpulets allocated before, and shares below the ideal size. The paper's
//    loop ends with both in hand.
//  - The sizes are made for mean rates. Share of an open device that is left over in the end goes
//    to gpulets whose round has little room for bursts.
#include "schedule/elastic.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "schedule/draft.h"
#include "schedule/finish.h"

namespace gpulet::schedule {
namespace {

enum class Efficient { knee, per_percent, whole };
enum class Order { lightest_first, heaviest_first };

struct Attempt {
  Efficient efficient;
  Order order;
};

// The paper's own first.
constexpr std::array kAttempts{Attempt{Efficient::knee, Order::lightest_first},
                               Attempt{Efficient::knee, Order::heaviest_first},
                               Attempt{Efficient::per_percent, Order::heaviest_first},
                               Attempt{Efficient::per_percent, Order::lightest_first},
                               Attempt{Efficient::whole, Order::lightest_first}};

// A gpulet that could be taken: a share of an open device, or of one to be opened.
struct Spot {
  std::size_t device_class = 0;
  std::optional<std::uint32_t> device;
  std::uint32_t size = 0;
};

class Partitioning {
 public:
  Partitioning(const Problem& problem, Attempt attempt)
      : problem_(problem), attempt_(attempt), draft_(problem), ideal_(problem.classes().size()) {}

  Draft run() {
    const std::vector<std::size_t> order = models_in_order();
    for (const std::size_t model : order) {
      while (draft_.left(model) > 0 && allocate(model)) {
      }
    }
    for (const std::size_t model : order) {
      while (draft_.left(model) > 0 && use_room(model)) {
      }
    }
    return std::move(draft_);
  }

 private:
  // Line 2. Ties by name.
  [[nodiscard]] std::vector<std::size_t> models_in_order() const {
    const double sign = attempt_.order == Order::lightest_first ? 1 : -1;
    std::vector<std::pair<double, std::size_t>> work;
    work.reserve(problem_.models().size());
    for (std::size_t model = 0; model < problem_.models().size(); ++model) {
      const ModelDemand& demand = *problem_.models()[model];
      work.emplace_back(sign * demand.rate * demand.slo_ms, model);
    }
    std::sort(work.begin(), work.end());
    std::vector<std::size_t> order;
    order.reserve(work.size());
    for (const auto& [amount, model] : work) order.push_back(model);
    return order;
  }

  // Lines 4-11.
  bool allocate(std::size_t model) {
    for (std::size_t index = 0; index < ideal_.size(); ++index)
      ideal_[index] = ideal_size(model, index);
    std::optional<Spot> spot = best_remaining(model);
    if (!spot) spot = best_unopened(model);
    if (!spot) return false;
    const double rate = served_at(model, *spot);
    if (!merge(model, rate, *spot)) occupy(model, rate, *spot);
    return true;
  }

  // Lines 6-8: an index into the class's sizes; nothing where no size serves the model.
  [[nodiscard]] std::optional<std::uint32_t> ideal_size(std::size_t model,
                                                        std::size_t device_class) const {
    const std::vector<int>& sizes = problem_.classes()[device_class].sizes;
    const std::uint32_t best_size = problem_.on_class(model, device_class).best_size;
    const double best_rate = problem_.row(model, device_class, best_size).most_rate;
    if (best_rate <= 0) return std::nullopt;
    std::optional<std::uint32_t> efficient;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::uint32_t size = 0; size < sizes.size(); ++size) {
      const double rate = problem_.row(model, device_class, size).most_rate;
      if (rate <= 0) continue;
      if (rate >= draft_.left(model) && attempt_.efficient != Efficient::whole) return size;
      const double merit = efficiency(rate / best_rate, sizes[size], sizes.back());
      if (merit > highest + kRoundingSlack) {
        highest = merit;
        efficient = size;
      }
    }
    return efficient;
  }

  [[nodiscard]] double efficiency(double part_of_best_rate, int percent,
                                  int largest_percent) const {
    switch (attempt_.efficient) {
      case Efficient::knee:
        return part_of_best_rate - static_cast<double>(percent) / largest_percent;
      case Efficient::per_percent:
        return part_of_best_rate / percent;
      case Efficient::whole:
        return percent;
    }
    return 0;
  }

  [[nodiscard]] double served_at(std::size_t model, const Spot& spot) const {
    return std::min(draft_.left(model),
                    problem_.row(model, spot.device_class, spot.size).most_rate);
  }

  // The spot on an open device for at least `wanted`; nothing where it has none for this model.
  [[nodiscard]] std::optional<Spot> spot_on(std::size_t model, std::uint32_t device,
                                            std::uint32_t wanted) const {
    const DraftDevice& host = draft_.devices()[device];
    const auto size =
        size_taken(draft_.class_of(device), host.free_percent, host.partitions, wanted);
    if (!size || !draft_.memory_fits(model, device)) return std::nullopt;
    const Spot spot{host.device_class, device, *size};
    if (served_at(model, spot) <= 0) return std::nullopt;
    return spot;
  }

  // Lines 14-19 for what open devices have left.
  [[nodiscard]] std::optional<Spot> best_remaining(std::size_t model) const {
    std::optional<Spot> best;
    std::pair<int, std::uint32_t> least{std::numeric_limits<int>::max(), 0};
    for (const std::uint32_t device : draft_.roomy()) {
      const std::pair candidate{draft_.devices()[device].free_percent, device};
      const auto& wanted = ideal_[draft_.devices()[device].device_class];
      if (!wanted || candidate > least) continue;
      if (const auto spot = spot_on(model, device, *wanted)) {
        best = spot;
        least = candidate;
      }
    }
    return best;
  }

  // Lines 17-19 for a device that is still whole.
  [[nodiscard]] std::optional<Spot> best_unopened(std::size_t model) const {
    std::optional<Spot> best;
    double most = 0;
    for (std::size_t index = 0; index < ideal_.size(); ++index) {
      if (!ideal_[index] || !draft_.can_open(index) || !draft_.memory_fits_empty(model, index))
        continue;
      const DeviceClass& device_class = problem_.classes()[index];
      const auto size = size_taken(device_class, kWholeDevice.percent, 0, *ideal_[index]);
      if (!size) continue;
      const Spot spot{index, std::nullopt, *size};
      const double per_percent = served_at(model, spot) / device_class.sizes[*size];
      if (per_percent > most) {
        best = spot;
        most = per_percent;
      }
    }
    return best;
  }

  std::size_t occupy(std::size_t model, double rate, const Spot& spot) {
    const std::uint32_t device = spot.device ? *spot.device : draft_.open(spot.device_class);
    return draft_.add_gpulet(device, spot.size, model, rate);
  }

  // Line 22: the newcomer joins a gpulet at least as large as its spot, or takes the spot and a
  // smaller gpulet joins it there, which gives the smaller one's share back.
  bool merge(std::size_t model, double rate, const Spot& spot) {
    const int spot_percent = problem_.classes()[spot.device_class].sizes[spot.size];
    std::optional<std::size_t> best;
    double fullest = 0;
    for (std::size_t index = 0; index < draft_.gpulets().size(); ++index) {
      const DraftGpulet& gpulet = draft_.gpulets()[index];
      if (gpulet.turns.empty()) continue;
      const bool joins = draft_.percent(gpulet) >= spot_percent;
      const double load = joins ? gpulet.load + load_at(draft_.row(model, gpulet), rate)
                                : load_absorbed(gpulet, model, rate, spot);
      // Of equals the one allocated first.
      if (load <= fullest || load > 1 + kRoundingSlack) continue;
      if (joins ? draft_.fits(index, model, rate) : absorbs(index, model, rate, spot)) {
        best = index;
        fullest = load;
      }
    }
    if (!best) return false;
    if (draft_.percent(draft_.gpulets()[*best]) >= spot_percent) {
      draft_.add(*best, model, rate);
    } else {
      draft_.absorb(occupy(model, rate, spot), *best);
    }
    return true;
  }

  [[nodiscard]] static double load_at(const Row& row, double rate) {
    return row.largest == 0 ? std::numeric_limits<double>::infinity() : rate * row.least_ms / 1000;
  }

  [[nodiscard]] double load_absorbed(const DraftGpulet& gpulet, std::size_t model, double rate,
                                     const Spot& spot) const {
    double load = load_at(problem_.row(model, spot.device_class, spot.size), rate);
    for (const Turn& turn : gpulet.turns) {
      load += load_at(problem_.row(turn.model, spot.device_class, spot.size), turn.rate);
    }
    return load;
  }

  // Whether the spot holds the newcomer and all of the gpulet. REQUIRES: load_absorbed is finite.
  [[nodiscard]] bool absorbs(std::size_t gpulet, std::size_t model, double rate, const Spot& spot) {
    const Row& row = problem_.row(model, spot.device_class, spot.size);
    draft_.turns_at(gpulet, spot.device_class, spot.size, draft_.turn(model, row, rate), &merged_);
    return memory_absorbs(draft_.gpulets()[gpulet], spot) &&
           least_duty_cycle_ms(merged_).has_value();
  }

  [[nodiscard]] bool memory_absorbs(const DraftGpulet& gpulet, const Spot& spot) const {
    const double limit_mb = problem_.classes()[spot.device_class].example->memory_mb;
    if (limit_mb == 0) return true;
    double memory_mb = spot.device ? draft_.devices()[*spot.device].memory_mb : 0;
    for (const Turn& turn : merged_)
      memory_mb += problem_.on_class(turn.model, spot.device_class).memory_mb;
    if (spot.device == gpulet.device) {
      // What moves within the device is loaded there already.
      for (const Turn& turn : gpulet.turns) {
        memory_mb -= problem_.on_class(turn.model, spot.device_class).memory_mb;
      }
    }
    return memory_mb <= limit_mb;
  }

  // Gives what is left of the model to whoever has the largest room for it.
  bool use_room(std::size_t model) {
    const std::optional<Draft::Room> room = draft_.most_room(model);
    const double negligible = kRoundingSlack * problem_.models()[model]->rate;
    const double beaten = room ? room->rate : negligible;
    const std::optional<Spot> spot = largest_share(model);
    if (spot && served_at(model, *spot) > std::min(beaten, draft_.left(model))) {
      occupy(model, served_at(model, *spot), *spot);
      return true;
    }
    if (room) draft_.add(room->gpulet, model, std::min(room->rate, draft_.left(model)));
    return room.has_value();
  }

  // The remaining share of an open device that serves most of the model, whatever its size.
  [[nodiscard]] std::optional<Spot> largest_share(std::size_t model) const {
    std::optional<Spot> best;
    for (const std::uint32_t device : draft_.roomy()) {
      const auto sizes = static_cast<std::uint32_t>(draft_.class_of(device).sizes.size());
      for (std::uint32_t size = 0; size < sizes; ++size) {
        const std::optional<Spot> spot = spot_on(model, device, size);
        if (!spot) continue;
        const double gain = best ? served_at(model, *spot) - served_at(model, *best) : 1;
        if (gain > 0 || (gain == 0 && device < *best->device)) best = spot;
      }
    }
    return best;
  }

  const Problem& problem_;
  const Attempt attempt_;
  Draft draft_;
  std::vector<std::optional<std::uint32_t>>
      ideal_;  // of the model at hand, beside the problem's classes
  std::vector<Turn> merged_;
};

}  // namespace

Plan ElasticPartitioning::plan(const PlanInput& input) const {
  const Problem problem(input);
  std::optional<Draft> best;
  for (const Attempt& attempt : kAttempts) {
    Draft draft = Partitioning(problem, attempt).run();
    if (!best || draft.left_of_all() < best->left_of_all()) best = std::move(draft);
    if (best->left_of_all() == 0) break;
  }
  best->use_spare_share();
  return finish(name(), *best);
}

}  // namespace gpulet::schedule
