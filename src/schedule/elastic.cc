// Elastic partitioning: gpulet (ATC 2022) section 4.3, algorithm 1. Models in ascending order of
// rate * SLO; each takes gpulets of its ideal size, min(p_eff, p_req), by best fit over what
// remains of the devices, until its rate has a place; a gpulet taken is first tried together with
// those allocated before (temporal merging).
//
// Choices where the paper leaves one:
//  - p_eff is called both "the highest performance per resource" and "the knee" of rate over size.
//    On real profiles these are two sizes. The knee, here the size whose rate lies highest above
//    the straight line from nothing to the best rate, is tried first.
//  - p_req is the smallest size whose own highest rate covers what is left of the demand.
//  - The order and the ideal size decide more scenarios than anything else, and no choice of them
//    is always right. Where the paper's leaves demand without a place, the same algorithm runs with
//    the heaviest model first (the order of the gpu-let preprint), with the other reading of p_eff,
//    and with p_req even where it is beyond p_eff, so that a rest is not cut up; last with whole
//    devices as the only size, also as sbp packs them. The first plan that serves everything is
//    taken, else the one that serves the most. So elastic never schedules less than sbp does.
//  - Best fit: the smallest remaining share that holds the ideal size. Only where no open device
//    has one is another opened; among types, the one with the highest rate per percent. A share
//    whose rest nobody could use is taken whole, as the paper's second half of a device is.
//  - A new gpulet and one that is there already merge at the larger of their two sizes. Among those
//    that hold, the fullest one afterwards is taken. All duty cycles are tried (round.h), not one.
//  - Interference: line 20 checks the newcomer only. Here a gpulet is taken only where those beside
//    it keep their rules as well. Since a gpulet filled to its last request bears no neighbour at
//    all, further attempts fill those that could get one only as far as they would bear a slowdown
//    (kReserves). A share whose neighbours leave a model less than half of what it would have there
//    alone is passed over.
//  - What is left when no remaining share is large enough goes to whoever has room, largest room
//    first: the slack of gpulets allocated before, and shares below the ideal size. The paper's
//    loop ends with both in hand.
//  - Where a plan is in force, it is tried first whether that serves the demand with what must
//    change alone (seeded.h): a gpulet that stays costs no new process. Where it does not, one
//    device after the other is cleared for that, and only then is everything laid out anew.
//    Whether fewer devices would do is the scaling loop's question (scaling.h).
//  - The sizes are made for mean rates. Share of an open device that is left over in the end goes
//    to gpulets whose round has little room for bursts.
#include "schedule/elastic.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/finish.h"
#include "schedule/sbp.h"
#include "schedule/seeded.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

enum class Efficient { knee, per_percent, whole };
// What becomes of a rest that takes more than p_eff.
enum class Rest { in_parts, at_once };

struct Attempt {
  Efficient efficient;
  Order order;
  Rest rest;
};

// The paper's own first.
constexpr std::array kAttempts{
    Attempt{Efficient::knee, Order::lightest_first, Rest::in_parts},
    Attempt{Efficient::knee, Order::lightest_first, Rest::at_once},
    Attempt{Efficient::knee, Order::heaviest_first, Rest::at_once},
    Attempt{Efficient::per_percent, Order::heaviest_first, Rest::at_once},
    Attempt{Efficient::per_percent, Order::lightest_first, Rest::at_once},
    Attempt{Efficient::knee, Order::heaviest_first, Rest::in_parts},
    Attempt{Efficient::per_percent, Order::heaviest_first, Rest::in_parts},
    Attempt{Efficient::whole, Order::lightest_first, Rest::in_parts}};

// The slowdowns by a neighbour to come that attempts leave room for, where there is interference at
// all: about the lower quartile, the median and the upper end of those measured. More of them
// schedule a little more and cost as many attempts.
constexpr std::array kReserves{1.0, 1.15, 1.3, 1.6};

// With interference and more models than this the paper's attempt is the only one for each reserve:
// a plan takes seconds, and what does not fit in one order hardly fits in another.
constexpr std::size_t kManyModels = 200;

constexpr double kFullLoad = 1 + kRoundingSlack;

// The highest rate of a row if everything took `slowdown` times as long.
double rate_slowed(const Row& row, double slo_ms, double slowdown) {
  if (slowdown == 1) return row.most_rate;
  std::vector<double> latency_ms(row.latency_ms, row.latency_ms + row.largest);
  Row slowed = row;
  slowed.latency_ms = latency_ms.data();
  slowed.largest = 0;
  for (double& latency : latency_ms) {
    latency *= slowdown;
    if (latency <= longest_useful_ms(slo_ms)) ++slowed.largest;
  }
  rate_row(&slowed, slo_ms);
  return slowed.most_rate;
}

class Partitioning {
 public:
  Partitioning(Problem& problem, Attempt attempt, double reserve, Draft begun)
      : problem_(problem),
        attempt_(attempt),
        reserve_(reserve),
        draft_(std::move(begun)),
        rates_(problem.classes().size()),
        ideal_(problem.classes().size()) {}

  Draft run() {
    const std::vector<std::size_t> order = models_by(problem_, attempt_.order, rate_times_slo);
    for (const std::size_t model : order) {
      find_rates(model);
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
  // What a gpulet of each size may take of the model at hand.
  void find_rates(std::size_t model) {
    const double slo_ms = problem_.models()[model]->slo_ms;
    for (std::size_t index = 0; index < rates_.size(); ++index) {
      const std::vector<int>& sizes = problem_.classes()[index].sizes;
      rates_[index].resize(sizes.size());
      for (std::uint32_t size = 0; size < sizes.size(); ++size) {
        const bool alone = sizes[size] + sizes.front() > kWholeDevice.percent;
        rates_[index][size] =
            rate_slowed(problem_.row(model, index, size), slo_ms, alone ? 1 : reserve_);
      }
    }
  }

  // Lines 4-11.
  bool allocate(std::size_t model) {
    for (std::size_t index = 0; index < ideal_.size(); ++index)
      ideal_[index] = ideal_size(model, index);
    const RateOfSize alone = [this](std::size_t device_class, std::uint32_t size) {
      return rates_[device_class][size];
    };
    const RateOfSize worthwhile = [&](std::size_t device_class, std::uint32_t size) {
      return alone(device_class, size) / 2;
    };
    // Lines 14-19 for what open devices have left, 17-19 for one that is still whole.
    std::optional<Spot> spot = best_remaining(draft_, model, ideal_, worthwhile, &scratch_);
    if (!spot) spot = best_unopened(draft_, model, taken_of_whole(problem_, ideal_), alone);
    if (!spot) return false;
    if (!merge(model, *spot)) occupy(draft_, model, *spot);
    return true;
  }

  // Lines 6-8: an index into the class's sizes; nothing where no size serves the model.
  [[nodiscard]] std::optional<std::uint32_t> ideal_size(std::size_t model,
                                                        std::size_t device_class) const {
    const std::vector<int>& sizes = problem_.classes()[device_class].sizes;
    const std::vector<double>& rates = rates_[device_class];
    const double best_rate = *std::max_element(rates.begin(), rates.end());
    if (best_rate <= 0) return std::nullopt;
    std::optional<std::uint32_t> efficient;
    std::optional<std::uint32_t> required;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::uint32_t size = 0; size < sizes.size(); ++size) {
      if (rates[size] <= 0) continue;
      if (!required && rates[size] >= draft_.left(model)) required = size;
      const double merit = efficiency(rates[size] / best_rate, sizes[size], sizes.back());
      if (merit > highest + kRoundingSlack) {
        highest = merit;
        efficient = size;
      }
    }
    if (!required || attempt_.efficient == Efficient::whole) return efficient;
    return attempt_.rest == Rest::at_once ? required : std::min(required, efficient);
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

  // Line 22: the newcomer joins a gpulet at least as large as its spot, or takes the spot and a
  // smaller gpulet joins it there, which gives the smaller one's share back.
  bool merge(std::size_t model, const Spot& spot) {
    const int spot_percent = problem_.classes()[spot.device_class].sizes[spot.size];
    std::optional<std::size_t> best;
    double fullest = 0;
    for (std::size_t index = 0; index < draft_.gpulets().size(); ++index) {
      const DraftGpulet& gpulet = draft_.gpulets()[index];
      if (gpulet.turns.empty()) continue;
      const bool joins = draft_.percent(gpulet) >= spot_percent;
      // Cheaper than the row beside its neighbours, which is no faster.
      if (joins && gpulet.load + load_at(row_alone(model, gpulet), spot.rate) > kFullLoad) continue;
      const double load = joins ? gpulet.load + load_at(draft_.row(model, gpulet), spot.rate)
                                : load_absorbed(gpulet, model, spot);
      // Of equals the one allocated first.
      if (load <= fullest || load > kFullLoad) continue;
      if (joins ? draft_.fits(index, model, spot.rate)
                : draft_.absorbs(spot, model, spot.rate, index)) {
        best = index;
        fullest = load;
      }
    }
    if (!best) return false;
    if (draft_.percent(draft_.gpulets()[*best]) >= spot_percent) {
      draft_.add(*best, model, spot.rate);
    } else {
      draft_.absorb(occupy(draft_, model, spot), *best);
    }
    return true;
  }

  [[nodiscard]] const Row& row_alone(std::size_t model, const DraftGpulet& gpulet) const {
    return problem_.row(model, draft_.devices()[gpulet.device].device_class, gpulet.size);
  }

  [[nodiscard]] static double load_at(const Row& row, double rate) {
    return row.largest == 0 ? std::numeric_limits<double>::infinity() : rate * row.least_ms / 1000;
  }

  // A lower bound of the round that would hold both.
  [[nodiscard]] double load_absorbed(const DraftGpulet& gpulet, std::size_t model,
                                     const Spot& spot) const {
    double load = load_at(problem_.row(model, spot.device_class, spot.size), spot.rate);
    for (const Turn& turn : gpulet.turns) {
      load += load_at(problem_.row(turn.model, spot.device_class, spot.size), turn.rate);
    }
    return load;
  }

  // Gives what is left of the model to whoever has the largest room for it.
  bool use_room(std::size_t model) {
    const std::optional<Draft::Room> room = draft_.most_room(model);
    const double negligible = kRoundingSlack * problem_.models()[model]->rate;
    const double beaten = room ? room->rate : negligible;
    const std::optional<Spot> spot = largest_share(draft_, model);
    if (spot && spot->rate > std::min(beaten, draft_.left(model))) {
      occupy(draft_, model, *spot);
      return true;
    }
    if (room) draft_.add(room->gpulet, model, std::min(room->rate, draft_.left(model)));
    return room.has_value();
  }

  Problem& problem_;
  const Attempt attempt_;
  const double reserve_;
  Draft draft_;
  std::vector<std::vector<double>> rates_;  // of the model at hand, by class and size
  WantedSizes ideal_;                       // of the model at hand
  BestFitWalk::Scratch scratch_;
};

// Keeps the better of two; whether it serves everything.
bool improve(std::optional<Draft>* best, Draft draft) {
  if (!*best || draft.left_of_all() < (*best)->left_of_all()) *best = std::move(draft);
  return (*best)->left_of_all() == 0;
}

}  // namespace

Draft elastic_partitioning(Problem& problem) {
  std::optional<Draft> best;
  const bool interferes = problem.input().interference != nullptr;
  const bool many = interferes && problem.models().size() > kManyModels;
  for (const double reserve : kReserves) {
    if (reserve > 1 && !interferes) break;
    for (const Attempt& attempt : std::span(kAttempts).first(many ? 1 : kAttempts.size())) {
      if (improve(&best, Partitioning(problem, attempt, reserve, Draft(problem)).run()))
        return *std::move(best);
    }
  }
  improve(&best, pack(problem, whole_devices(problem)));
  return *std::move(best);
}

std::optional<Draft> served_whole_from(Problem& problem, const Draft& begun) {
  for (const Attempt& attempt : kAttempts) {
    Draft draft = Partitioning(problem, attempt, 1, begun).run();
    if (draft.left_of_all() == 0) return draft;
    if (attempt.rest == Rest::at_once) break;  // what is left is little: the order hardly matters
  }
  return std::nullopt;
}

// The devices of the plan in force, those first that are divided anew at the least cost: with the
// fewest gpulets.
std::vector<DeviceKey> cheapest_to_clear(const Plan& current) {
  std::map<DeviceKey, std::size_t> gpulets;
  for (const PlannedGpulet& gpulet : current.gpulets) ++gpulets[gpulet.device];
  std::vector<DeviceKey> devices;
  devices.reserve(gpulets.size());
  for (const auto& [device, count] : gpulets) devices.push_back(device);
  std::stable_sort(devices.begin(), devices.end(), [&](const DeviceKey& a, const DeviceKey& b) {
    return gpulets.at(a) < gpulets.at(b);
  });
  return devices;
}

// The plan in force, changed where it must be: with all its gpulets, or with one of its devices
// divided anew. Nothing where neither serves everything.
std::optional<Draft> elastic_from_current(Problem& problem) {
  constexpr std::size_t kMostTried = 8;  // devices: each costs as much as a plan from nothing
  if (auto stayed = served_whole_from(problem, seeded_with_current(problem))) return stayed;
  std::vector<DeviceKey> devices = cheapest_to_clear(*problem.input().current);
  devices.resize(std::min(devices.size(), kMostTried));
  for (const DeviceKey& device : devices) {
    if (auto changed = served_whole_from(problem, seeded_with_current(problem, device)))
      return changed;
  }
  return std::nullopt;
}

Draft elastic_draft(Problem& problem) {
  if (problem.input().current != nullptr) {
    if (std::optional<Draft> stayed = elastic_from_current(problem)) return *std::move(stayed);
  }
  Draft draft = elastic_partitioning(problem);
  draft.use_spare_share();
  return draft;
}

Plan ElasticPartitioning::plan(const PlanInput& input) const {
  Problem problem(input);
  return finish(name(), elastic_draft(problem));
}

}  // namespace gpulet::schedule
