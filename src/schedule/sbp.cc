// The policies sbp and sbp-split. Pure.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/candidates.h"
#include "schedule/fit_screen.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {

// ---- sbp: the temporal baseline of Nexus, as gpulet (ATC 2022), section 2.2, describes it
//
// Devices are used whole. First every model gets as many devices of its own as it saturates. Then
// the rest of each rate is placed in descending order of its occupancy of a device: beside the
// models of an open device or on a new one.
//
// Choices where the papers leave one:
//  - "Whole" is the largest size that a device lists, even where that is below 100.
//  - Whether models share a device is decided by the shortest duty cycle that holds their round
//    (min_duty_cycle_ms), not by the smaller of two duty cycles. So no pair is rejected because the
//    one cycle that was tried did not hold.
//  - Among devices that hold a rest, the one that is fullest afterwards wins (best fit by the busy
//    part of its duty cycle). gpulet's text merges pairs until no pair is left; Nexus places one
//    rest after the other. This is the latter, whose cost is not cubic.
//  - Among devices of different types, a model takes the free type with its highest rate.
//  - A rest that fits nowhere whole is not spread over devices (neither paper splits one), but the
//    largest part that one device can take is served.
//  - Equal parts (sbp-split): parts of open devices come first. Where parts of one device slow each
//    other down, a part whose neighbours leave a model less than half of its rate alone is skipped
//    while there are others.

namespace {

class Packing {
 public:
  Packing(PlanContext& context, const std::vector<EqualParts>& division)
      : context_(context), division_(division), builder_(context) {}

  PlanBuilder run() {
    for (std::size_t model = 0; model < context_.models().size(); ++model) saturate(model);
    for (const std::size_t model : rests_by_occupancy()) place_rest(model);
    return std::move(builder_);
  }

 private:
  [[nodiscard]] const LatencyCurve& curve_alone(std::size_t model, std::size_t device_class) const {
    return context_.curve(model, device_class, division_[device_class].size);
  }

  // The free part on which the model is fastest. Empty where no part can serve it.
  [[nodiscard]] std::optional<Candidate> best_part(std::size_t model) {
    std::optional<Candidate> best;
    for (std::size_t index = 0; index < context_.classes().size(); ++index) {
      const double rate = curve_alone(model, index).max_rate;
      if (rate > (best ? best->rate : 0) && builder_.can_open(index) &&
          builder_.memory_fits_empty(model, index)) {
        best = Candidate{index, std::nullopt, division_[index].size, rate};
      }
    }
    const double enough = best ? best->rate / 2 : 0;
    std::optional<Candidate> open;
    for (const std::uint32_t device : builder_.divisible_devices()) {
      const BuilderDevice& host = builder_.devices()[device];
      const EqualParts& division = division_[host.device_class];
      if (host.partitions >= division.parts) continue;
      const double rate = builder_.max_rate_of_new(device, division.size, model);
      const double least = open ? open->rate : enough;
      if (rate > least || (open && rate == least && device < *open->device)) {
        open = Candidate{host.device_class, device, division.size, rate};
      }
    }
    return open ? open : best;
  }

  void saturate(std::size_t model) {
    while (builder_.unplaced(model) > 0) {
      const std::optional<Candidate> part = best_part(model);
      if (!part || builder_.unplaced(model) < part->rate) return;
      occupy(builder_, model, *part);
    }
  }

  // The fraction of its duty cycle that a rest alone keeps a part busy: with the largest batch that
  // gathers and runs within the SLO, or with one request per longest cycle that the SLO allows.
  [[nodiscard]] double occupancy(std::size_t model) const {
    double least = 1;
    const double slo_ms = context_.models()[model]->slo_ms;
    for (std::size_t index = 0; index < context_.classes().size(); ++index) {
      const LatencyCurve& curve = curve_alone(model, index);
      if (curve.max_batch == 0) continue;
      double occupied = curve.latency_ms[0] / (slo_ms - curve.latency_ms[0]);
      for (std::uint32_t batch = 1; batch <= curve.max_batch; ++batch) {
        const double gather_ms = batch * 1000.0 / builder_.unplaced(model);
        if (curve.latency_ms[batch - 1] + gather_ms <= slo_ms) {
          occupied = curve.latency_ms[batch - 1] / gather_ms;
        }
      }
      least = std::min(least, occupied);
    }
    return least;
  }

  [[nodiscard]] std::vector<std::size_t> rests_by_occupancy() const {
    std::vector<std::pair<double, std::size_t>> rests;
    for (std::size_t model = 0; model < context_.models().size(); ++model) {
      if (builder_.unplaced(model) > 0) rests.emplace_back(-occupancy(model), model);
    }
    return models_by(std::move(rests));
  }

  void place_rest(std::size_t model) {
    const double rate = builder_.unplaced(model);
    by_load_.clear();
    for (std::size_t index = 0; index < builder_.gpulets().size(); ++index) {
      const BuilderGpulet& gpulet = builder_.gpulets()[index];
      const double load = gpulet.load + rate * builder_.curve(model, gpulet).min_request_ms / 1000;
      if (load <= kFullLoad) by_load_.emplace_back(-load, index);
    }
    std::sort(by_load_.begin(), by_load_.end());
    const auto best = std::find_if(by_load_.begin(), by_load_.end(), [&](const auto& gpulet) {
      return screen_.may_fit(gpulet.second, model, rate) &&
             builder_.fits(gpulet.second, model, rate);
    });
    if (best != by_load_.end()) {
      builder_.add(best->second, model, rate);
    } else if (const auto part = best_part(model)) {
      occupy(builder_, model, *part);
    } else {
      add_spare(builder_, model, largest_spare_capacity(builder_, model));
    }
  }

  PlanContext& context_;
  const std::vector<EqualParts>& division_;
  PlanBuilder builder_;
  FitScreen screen_{builder_};
  std::vector<std::pair<double, std::size_t>> by_load_;  // gpulets, the fullest first
};

}  // namespace

std::vector<EqualParts> whole_devices(const PlanContext& context) {
  std::vector<EqualParts> division;
  division.reserve(context.classes().size());
  for (const DeviceClass& device_class : context.classes()) {
    division.push_back({static_cast<std::uint32_t>(device_class.sizes.size() - 1), 1});
  }
  return division;
}

PlanBuilder pack(PlanContext& context, const std::vector<EqualParts>& division) {
  return Packing(context, division).run();
}

Plan plan_sbp(const PlanInput& input) {
  PlanContext context(input);
  return finish(pack(context, whole_devices(context)));
}

// ---- sbp-split: gpulet (ATC 2022), section 3.2
//
// "A GPU is split into two partitions with the same resource in each partition". The packing treats
// every half as a device.
//
// Choices where the paper leaves one:
//  - A half is the largest listed size that fits twice into a device: 50 where listed, else the
//    nearest below.
//  - A device that lists no such size, or allows one gpulet only, is used whole.
//  - Only the two halves are used: a device that lists 40 keeps 20 % idle, and no half grows into
//    an idle one.

namespace {

std::vector<EqualParts> halves(const PlanContext& context) {
  std::vector<EqualParts> division = whole_devices(context);
  for (std::size_t index = 0; index < division.size(); ++index) {
    const DeviceClass& device_class = context.classes()[index];
    if (device_class.example->max_partitions < 2) continue;
    for (std::uint32_t size = 0; size < device_class.sizes.size(); ++size) {
      if (2 * device_class.sizes[size] <= kWholeDevice.percent) division[index] = {size, 2};
    }
  }
  return division;
}

}  // namespace

Plan plan_sbp_split(const PlanInput& input) {
  PlanContext context(input);
  return finish(pack(context, halves(context)));
}

}  // namespace gpulet::schedule
