// iGniter (IEEE TPDS 2022), algorithms 1 and 2: for every model the batch that its rate fills and
// the least share with which that meets the SLO, alone on a device; then, largest share first, onto
// the device where all of them together have to grow the least for what they slow each other down,
// and onto another device only where none has the room. No model shares a gpulet with another.
//
// Choices where the papers leave one:
//  - iGniter computes batch and share from a model of the latency in closed form, with half of the
//    SLO for the batch to fill. Here the latencies are the profile's, and the least share is the
//    smallest listed size at which any batch serves the rate within the SLO; the batch is then the
//    one of the least duty cycle, as for every policy (finish.h).
//  - Shares grow by listed sizes, where iGniter's grow by a unit: whoever does not hold its rate
//    beside the others takes its next size, until all hold or the device is full.
//  - Of devices that cost the same the one opened first, as in iGniter; where nobody slows anybody
//    down that is first fit. Of several types the one with the highest rate per percent is opened.
//  - iGniter rents as many GPUs as it takes. Here a rate beyond every size takes gpulets of the
//  size
//    that serves the most until the rest is within one, and what no device has room for is served
//    by the remaining shares that take the most of it.
#include "schedule/igniter.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/finish.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

struct Provisioned {
  std::uint32_t model = 0;
  std::uint32_t size = 0;  // index in the class's sizes
  double rate = 0;
};

struct Host {
  std::uint32_t device_class = 0;
  int percent = 0;  // of all gpulets
  double memory_mb = 0;
  std::vector<Provisioned> gpulets;
};

class Provisioning {
 public:
  explicit Provisioning(Problem& problem) : problem_(problem), wanted_(problem.classes().size()) {
    for (const DeviceClass& known : problem.classes()) unopened_.push_back(known.devices.size());
    for (const ModelDemand* demand : problem.models()) left_.push_back(demand->rate);
  }

  Draft run() {
    const std::vector<std::size_t> order = models_by_share(problem_);
    for (const std::size_t model : order) {
      while (left_[model] > kRoundingSlack * problem_.models()[model]->rate && place(model)) {
      }
    }
    Draft draft = drafted();
    for (const std::size_t model : order) {
      while (draft.left(model) > 0) {
        const std::optional<Spot> spot = largest_share(draft, model);
        if (!spot || spot->rate <= kRoundingSlack * problem_.models()[model]->rate) break;
        occupy(draft, model, *spot);
      }
    }
    return draft;
  }

 private:
  bool place(std::size_t model) {
    least_sizes(problem_, model, left_[model], &wanted_);
    Host* best = nullptr;
    Host best_after;
    int least_growth = 0;
    for (Host& host : hosts_) {
      if (!has_room(host, model)) continue;
      Host after = joined(host, model);
      const int before_percent = after.percent;
      if (!grow(&after)) continue;
      const int growth = after.percent - before_percent;
      if (best != nullptr && growth >= least_growth) continue;
      best = &host;
      best_after = std::move(after);
      least_growth = growth;
      if (growth == 0) break;
    }
    if (best == nullptr) {
      const std::optional<std::uint32_t> opened = class_to_open(model);
      if (!opened) return false;
      --unopened_[*opened];
      best = &hosts_.emplace_back();
      best->device_class = *opened;
      best_after = joined(*best, model);
    }
    left_[model] -= best_after.gpulets.back().rate;
    *best = std::move(best_after);
    return true;
  }

  [[nodiscard]] bool has_room(const Host& host, std::size_t model) const {
    const DeviceClass& known = problem_.classes()[host.device_class];
    const std::optional<std::uint32_t>& size = wanted_[host.device_class];
    const double memory_mb = host.memory_mb + problem_.on_class(model, host.device_class).memory_mb;
    return size && host.gpulets.size() < known.example->max_partitions &&
           host.percent + known.sizes[*size] <= kWholeDevice.percent &&
           (known.example->memory_mb == 0 || memory_mb <= known.example->memory_mb);
  }

  // The host with the model in its least share.
  [[nodiscard]] Host joined(Host host, std::size_t model) const {
    const std::uint32_t size = *wanted_[host.device_class];
    const double most = problem_.row(model, host.device_class, size).most_rate;
    host.percent += problem_.classes()[host.device_class].sizes[size];
    host.memory_mb += problem_.on_class(model, host.device_class).memory_mb;
    host.gpulets.push_back({static_cast<std::uint32_t>(model), size, std::min(left_[model], most)});
    return host;
  }

  // Algorithm 2; false where the device is too small.
  [[nodiscard]] bool grow(Host* host) {
    if (!problem_.interferes(host->device_class)) return true;
    const std::vector<int>& sizes = problem_.classes()[host->device_class].sizes;
    bool all_hold = false;
    while (!all_hold) {
      all_hold = true;
      for (std::size_t index = 0; index < host->gpulets.size(); ++index) {
        if (holds(*host, index)) continue;
        Provisioned& short_of_share = host->gpulets[index];
        if (short_of_share.size + 1 == sizes.size()) return false;
        host->percent += sizes[short_of_share.size + 1] - sizes[short_of_share.size];
        if (host->percent > kWholeDevice.percent) return false;
        ++short_of_share.size;
        all_hold = false;
      }
    }
    return true;
  }

  [[nodiscard]] bool holds(const Host& host, std::size_t index) {
    const Provisioned& own = host.gpulets[index];
    std::vector<Neighbour> neighbours;
    for (std::size_t other = 0; other < host.gpulets.size(); ++other) {
      if (other == index) continue;
      neighbours.push_back({host.gpulets[other].size, {host.gpulets[other].model}});
    }
    return problem_.row_beside(own.model, host.device_class, own.size, neighbours).most_rate >=
           own.rate;
  }

  [[nodiscard]] std::optional<std::uint32_t> class_to_open(std::size_t model) const {
    if (hosts_.size() >= problem_.device_budget()) return std::nullopt;
    std::optional<std::uint32_t> best;
    double most = 0;
    for (std::uint32_t index = 0; index < unopened_.size(); ++index) {
      if (unopened_[index] == 0 || !has_room(Host{index, 0, 0, {}}, model)) continue;
      const double rate = problem_.row(model, index, *wanted_[index]).most_rate;
      const double per_percent =
          std::min(left_[model], rate) / problem_.classes()[index].sizes[*wanted_[index]];
      if (per_percent <= most) continue;
      most = per_percent;
      best = index;
    }
    return best;
  }

  [[nodiscard]] Draft drafted() {
    Draft draft(problem_);
    for (const Host& host : hosts_) {
      const std::uint32_t device = draft.open(host.device_class);
      for (const Provisioned& gpulet : host.gpulets)
        draft.add_gpulet(device, gpulet.size, gpulet.model, gpulet.rate);
    }
    return draft;
  }

  Problem& problem_;
  std::vector<Host> hosts_;
  std::vector<std::size_t> unopened_;  // beside the problem's classes
  std::vector<double> left_;           // beside the problem's models
  WantedSizes wanted_;                 // of the model at hand
};

}  // namespace

Plan Igniter::plan(const PlanInput& input) const {
  Problem problem(input);
  Draft draft = Provisioning(problem).run();
  draft.use_spare_share();
  return finish(name(), draft);
}

}  // namespace gpulet::schedule
