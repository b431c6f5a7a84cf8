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
#include "schedule/sbp.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "schedule/draft.h"
#include "schedule/finish.h"

namespace gpulet::schedule {
namespace {

class Packing {
 public:
  explicit Packing(const PlanInput& input) : problem_(input), draft_(problem_) {}

  Plan run() {
    for (std::size_t model = 0; model < problem_.models().size(); ++model) saturate(model);
    for (const std::size_t model : rests_by_occupancy()) place_rest(model);
    return finish("sbp", draft_);
  }

 private:
  [[nodiscard]] std::uint32_t whole(std::size_t device_class) const {
    return static_cast<std::uint32_t>(problem_.classes()[device_class].sizes.size() - 1);
  }

  // The class with a free device on which the model is fastest; nothing where it has no row on any.
  [[nodiscard]] std::optional<std::size_t> best_free_class(std::size_t model) const {
    std::optional<std::size_t> best;
    double best_rate = 0;
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      const double rate = problem_.row(model, index, whole(index)).most_rate;
      if (rate > best_rate && draft_.can_open(index) && draft_.memory_fits_empty(model, index)) {
        best = index;
        best_rate = rate;
      }
    }
    return best;
  }

  void give_device(std::size_t model, std::size_t device_class, double rate) {
    draft_.add_gpulet(draft_.open(device_class), whole(device_class), model, rate);
  }

  void saturate(std::size_t model) {
    while (draft_.left(model) > 0) {
      const std::optional<std::size_t> device_class = best_free_class(model);
      if (!device_class) return;
      const double rate = problem_.row(model, *device_class, whole(*device_class)).most_rate;
      if (draft_.left(model) < rate) return;
      give_device(model, *device_class, rate);
    }
  }

  // The fraction of its duty cycle that a rest alone keeps a device busy: with the largest batch
  // whose time to gather and to run is within the SLO, or with single requests, once in as long as
  // the SLO allows.
  [[nodiscard]] double occupancy(std::size_t model) const {
    double least = 1;
    const double slo_ms = problem_.models()[model]->slo_ms;
    for (std::size_t index = 0; index < problem_.classes().size(); ++index) {
      const Row& row = problem_.row(model, index, whole(index));
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
    std::sort(rests.begin(), rests.end());
    std::vector<std::size_t> order;
    order.reserve(rests.size());
    for (const auto& [occupied, model] : rests) order.push_back(model);
    return order;
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
    } else if (const auto device_class = best_free_class(model)) {
      const double most = problem_.row(model, *device_class, whole(*device_class)).most_rate;
      give_device(model, *device_class, std::min(draft_.left(model), most));
    } else if (const auto room = draft_.most_room(model)) {
      draft_.add(room->gpulet, model, std::min(room->rate, draft_.left(model)));
    }
  }

  Problem problem_;
  Draft draft_;
};

}  // namespace

Plan SquishyBinPacking::plan(const PlanInput& input) const { return Packing(input).run(); }

}  // namespace gpulet::schedule
