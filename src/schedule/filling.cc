#include "schedule/filling.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "schedule/candidates.h"

namespace gpulet::schedule {
namespace {

// The spare capacity of this many gpulets is considered, the latest ones: their SLOs are the most
// similar.
constexpr std::size_t kMostOpen = 12;
// A gpulet with less spare time, or which so many models in turn could not use, is full.
constexpr double kLeastSpare = 0.05;
constexpr std::uint32_t kMostRefusals = 6;

// How a model fills a whole device.
struct DeviceFilling {
  std::uint32_t device_class = 0;
  std::vector<std::uint32_t> sizes;  // of its gpulets, indices
  double rate = 0;                   // of all of them, requests per second
};

class Filling {
 public:
  explicit Filling(PlanContext& context) : context_(context), builder_(context) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by(context_, Order::lightest_first, slo_of)) {
      top_up(model);
      fill_whole_devices(model);
      top_up(model);
      place_rest(model);
    }
    return std::move(builder_);
  }

 private:
  struct Open {
    std::size_t gpulet = 0;
    std::uint32_t refusals = 0;
  };

  static double slo_of(const ModelDemand& demand) { return demand.slo_ms; }

  // Gives the model spare capacity of open gpulets: where its whole rest fits, that of the fullest
  // one, else the largest.
  void top_up(std::size_t model) {
    while (builder_.unplaced(model) > 0) {
      std::optional<std::size_t> best;
      double best_rate = 0;
      double best_merit = 0;
      for (std::size_t at = 0; at < open_.size(); ++at) {
        const BuilderGpulet& gpulet = builder_.gpulets()[open_[at].gpulet];
        const double rest = builder_.unplaced(model);
        const double request_s = builder_.curve(model, gpulet).min_request_ms / 1000;
        const double rate =
            most_of(builder_, open_[at].gpulet, model, rest, kLeastSpare / request_s);
        const double load = rate * request_s;
        if (rate < rest && load < kLeastSpare) {
          ++open_[at].refusals;
          continue;
        }
        const double merit = rate < rest ? load : 1 + gpulet.load;
        if (merit <= best_merit) continue;
        best = at;
        best_rate = rate;
        best_merit = merit;
      }
      if (best) {
        builder_.add(open_[*best].gpulet, model, best_rate);
        if (best_merit < 1) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(*best));
      }
      std::erase_if(open_, [](const Open& open) { return open.refusals > kMostRefusals; });
      if (!best) return;
    }
  }

  void fill_whole_devices(std::size_t model) {
    const std::optional<DeviceFilling> filling = best_filling(model);
    while (filling && builder_.unplaced(model) >= filling->rate &&
           builder_.can_open(filling->device_class)) {
      const std::uint32_t device = builder_.open(filling->device_class);
      for (const std::uint32_t size : filling->sizes) {
        const double most = builder_.max_rate_of_new(device, size, model);
        if (most > 0)
          builder_.add_gpulet(device, size, model, std::min(most, builder_.unplaced(model)));
      }
    }
  }

  // On the class where a device serves most.
  [[nodiscard]] std::optional<DeviceFilling> best_filling(std::size_t model) {
    std::optional<DeviceFilling> best;
    for (std::uint32_t index = 0; index < context_.classes().size(); ++index) {
      if (!builder_.can_open(index)) continue;
      // Whole gpulets first: nothing slows them down.
      for (auto size = static_cast<std::uint32_t>(context_.classes()[index].sizes.size());
           size-- > 0;) {
        const DeviceFilling filling = filling_with(model, index, size, best ? best->rate : 0);
        if (filling.rate > (best ? best->rate : 0)) best = filling;
      }
    }
    return best;
  }

  // Fills a device with as many gpulets of that size as fit, then with the largest gpulets that the
  // remaining share holds. Its rate is 0 where the device serves no more than `least`.
  [[nodiscard]] DeviceFilling filling_with(std::size_t model, std::uint32_t device_class,
                                           std::uint32_t size, double least) {
    const DeviceClass& known = context_.classes()[device_class];
    const double memory_mb = context_.on_class(model, device_class).memory_mb;
    DeviceFilling filling{device_class, {}, 0};
    int free_percent = kWholeDevice.percent;
    double free_mb = known.example->memory_mb > 0 ? known.example->memory_mb
                                                  : std::numeric_limits<double>::infinity();
    double rate_alone = 0;
    for (std::uint32_t next = size + 1; next-- > 0;) {
      while (known.sizes[next] <= free_percent && memory_mb <= free_mb &&
             filling.sizes.size() < known.example->max_partitions) {
        filling.sizes.push_back(next);
        free_percent -= known.sizes[next];
        free_mb -= memory_mb;
        rate_alone += context_.curve(model, device_class, next).max_rate;
      }
    }
    if (rate_alone <= least) return filling;
    if (!context_.interferes(device_class)) {
      filling.rate = rate_alone;
      return filling;
    }
    for (std::size_t at = 0; at < filling.sizes.size(); ++at) {
      beside_.clear();
      for (std::size_t other = 0; other < filling.sizes.size(); ++other) {
        if (other != at)
          beside_.push_back({filling.sizes[other], {static_cast<std::uint32_t>(model)}});
      }
      filling.rate +=
          context_.curve_beside(model, device_class, filling.sizes[at], beside_).max_rate;
    }
    return filling;
  }

  void place_rest(std::size_t model) {
    while (builder_.unplaced(model) > 0) {
      least_sizes(context_, model, builder_.unplaced(model), &wanted_);
      for (std::size_t index = 0; index < wanted_.size(); ++index) {
        if (wanted_[index] && context_.interferes(index))
          wanted_[index] = context_.on_class(model, index).best_size;
      }
      const RateOfSize any_rate = [](std::size_t, std::uint32_t) { return 0.0; };
      std::optional<Candidate> candidate = best_remaining(builder_, model, wanted_, any_rate);
      if (!candidate) candidate = best_unopened(builder_, model, taken_of_whole(context_, wanted_));
      if (!candidate) return;
      open_.push_back({occupy(builder_, model, *candidate), 0});
      if (open_.size() > kMostOpen) open_.erase(open_.begin());
    }
  }

  PlanContext& context_;
  PlanBuilder builder_;
  std::vector<Open> open_;  // by creation
  std::vector<Neighbour> beside_;
  WantedSizes wanted_;
};

}  // namespace

PlanBuilder fill_devices(PlanContext& context) { return Filling(context).run(); }

}  // namespace gpulet::schedule
