// Squishy bin packing (SBP): the temporal baseline of Nexus, as gpulet (ATC 2022) section 2.2
// describes it. Devices are used whole. First every model gets as many devices of its own as it
// saturates; then what is left of each rate is placed in descending order of how much of a device
// it takes, beside those that are there already or on a new device.
//
// Choices where the papers leave one:
//  - "Whole" is the largest size that a device lists: a device that lists no 100 is used at what it
//    has.
//  - Whether models share a device is decided by the least duty cycle that holds their round
//    (round.h), not by the smaller of two duty cycles: no pair is turned away because the one cycle
//    that was tried did not hold.
//  - Among devices that hold a rest, the one that is fullest afterwards is taken (best fit by the
//    busy part of its duty cycle). gpulet's text merges pairs until no pair is left, Nexus places
//    one rest after the other; this is the latter, whose cost is not cubic.
//  - With devices of different types a model takes the free type on which it reaches the highest
//    rate.
//  - A rest that fits nowhere whole is not spread over devices (neither paper splits one), but the
//    largest part that one device takes is served: better a part than nothing.
//  - The same packing fills equal parts of devices (sbp_split.cc). Parts of open devices go first.
//    Where parts of one device slow each other down, a part whose neighbours leave a model less
//    than half of what it would have there alone is passed over while there are others.
#include "schedule/sbp.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "schedule/finish.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

class Packing {
 public:
  Packing(Problem& problem, const std::vector<EqualParts>& division)
      : problem_(problem), division_(division), draft_(problem) {}

  Draft run() {
    for (std::size_t model = 0; model < problem_.models().size(); ++model) saturate(model);
    for (const std::size_t model : rests_by_occupancy()) place_rest(model);
    return std::move(draft_);
  }

 private:
  [[nodiscard]] const Row& row_alone(std::size_t model, std::size_t device_class) const {
    return problem_.row(model, device_class, division_[device_class].size);
  }

  // The free part on which the model is fastest; nothing where it has no row on any.
  [[nodiscard]] std::optional<Spot> best_part(std::size_t model) {
    std::optional<Spot> best;
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      const double rate = row_alone(model, index).most_rate;
      if (rate > (best ? best->rate : 0) && draft_.can_open(index) &&
          draft_.memory_fits_empty(model, index)) {
        best = Spot{{index, std::nullopt, division_[index].size}, rate};
      }
    }
    const double enough = best ? best->rate / 2 : 0;
    std::optional<Spot> open;
    for (const std::uint32_t device : draft_.roomy()) {
      const DraftDevice& host = draft_.devices()[device];
      const EqualParts& division = division_[host.device_class];
      if (host.partitions >= division.parts) continue;
      const double rate = draft_.most_rate_of_new(device, division.size, model);
      const double least = open ? open->rate : enough;
      if (rate > least || (open && rate == least && device < *open->device)) {
        open = Spot{{host.device_class, device, division.size}, rate};
      }
    }
    return open ? open : best;
  }

  void saturate(std::size_t model) {
    while (draft_.left(model) > 0) {
      const std::optional<Spot> part = best_part(model);
      if (!part || draft_.left(model) < part->rate) return;
      occupy(draft_, model, *part);
    }
  }

  // The fraction of its duty cycle that a rest alone keeps a part busy: with the largest batch
  // whose time to gather and to run is within the SLO, or with single requests, once in as long as
  // the SLO allows.
  [[nodiscard]] double occupancy(std::size_t model) const {
    double least = 1;
    const double slo_ms = problem_.models()[model]->slo_ms;
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      const Row& row = row_alone(model, index);
      if (row.largest == 0) continue;
      double occupied = row.latency_ms[0] / (slo_ms - row.latency_ms[0]);
      for (std::uint32_t batch = 1; batch <= row.largest; ++batch) {
        const double gather_ms = batch * 1000.0 / draft_.left(model);
        if (row.latency_ms[batch - 1] + gather_ms <= slo_ms) {
          occupied = row.latency_ms[batch - 1] / gather_ms;
        }
      }
      least = std::min(least, occupied);
    }
    return least;
  }

  [[nodiscard]] std::vector<std::size_t> rests_by_occupancy() const {
    std::vector<std::pair<double, std::size_t>> rests;
    for (std::size_t model = 0; model < problem_.models().size(); ++model) {
      if (draft_.left(model) > 0) rests.emplace_back(-occupancy(model), model);
    }
    return models_by(std::move(rests));
  }

  void place_rest(std::size_t model) {
    std::optional<std::size_t> best;
    double fullest = -1;
    for (std::size_t index = 0; index < draft_.gpulets().size(); ++index) {
      const DraftGpulet& gpulet = draft_.gpulets()[index];
      const double load =
          gpulet.load + draft_.left(model) * draft_.row(model, gpulet).least_ms / 1000;
      if (load > fullest && draft_.fits(index, model, draft_.left(model))) {
        best = index;
        fullest = load;
      }
    }
    if (best) {
      draft_.add(*best, model, draft_.left(model));
    } else if (const auto part = best_part(model)) {
      occupy(draft_, model, *part);
    } else if (const auto room = draft_.most_room(model)) {
      draft_.add(room->gpulet, model, std::min(room->rate, draft_.left(model)));
    }
  }

  Problem& problem_;
  const std::vector<EqualParts>& division_;
  Draft draft_;
};

}  // namespace

std::vector<EqualParts> whole_devices(const Problem& problem) {
  std::vector<EqualParts> division;
  division.reserve(problem.classes().size());
  for (const DeviceClass& device_class : problem.classes()) {
    division.push_back({static_cast<std::uint32_t>(device_class.sizes.size() - 1), 1});
  }
  return division;
}

Draft pack(Problem& problem, const std::vector<EqualParts>& division) {
  return Packing(problem, division).run();
}

Plan SquishyBinPacking::plan(const PlanInput& input) const {
  Problem problem(input);
  return finish(name(), pack(problem, whole_devices(problem)));
}

}  // namespace gpulet::schedule
