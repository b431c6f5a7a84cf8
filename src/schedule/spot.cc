#include "schedule/spot.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace gpulet::schedule {

std::optional<std::uint32_t> knee_size(const Problem& problem, std::size_t model,
                                       std::size_t device_class) {
  const std::vector<int>& sizes = problem.classes()[device_class].sizes;
  const std::uint32_t best_size = problem.on_class(model, device_class).best_size;
  const double best_rate = problem.row(model, device_class, best_size).most_rate;
  if (best_rate <= 0) return std::nullopt;
  std::optional<std::uint32_t> knee;
  double highest = -std::numeric_limits<double>::infinity();
  for (std::uint32_t size = 0; size < sizes.size(); ++size) {
    const double rate = problem.row(model, device_class, size).most_rate;
    if (rate <= 0) continue;
    const double above = rate / best_rate - static_cast<double>(sizes[size]) / sizes.back();
    if (above > highest + kRoundingSlack) {
      highest = above;
      knee = size;
    }
  }
  return knee;
}

std::optional<std::uint32_t> required_size(const Problem& problem, std::size_t model,
                                           std::size_t device_class, double rate) {
  const std::vector<int>& sizes = problem.classes()[device_class].sizes;
  for (std::uint32_t size = 0; size < sizes.size(); ++size) {
    if (problem.row(model, device_class, size).most_rate >= rate) return size;
  }
  return std::nullopt;
}

void least_sizes(const Problem& problem, std::size_t model, double rate, WantedSizes* sizes) {
  sizes->resize(problem.classes().size());
  for (std::size_t index = 0; index < sizes->size(); ++index) {
    std::optional<std::uint32_t>& size = (*sizes)[index];
    size = required_size(problem, model, index, rate);
    const std::uint32_t best = problem.on_class(model, index).best_size;
    if (!size && problem.row(model, index, best).most_rate > 0) size = best;
  }
}

BestFitWalk::BestFitWalk(const Draft& draft, std::span<const std::optional<std::uint32_t>> wanted,
                         Scratch* scratch)
    : left_(scratch) {
  left_->clear();
  for (const std::uint32_t device : draft.roomy()) {
    const DraftDevice& host = draft.devices()[device];
    const std::optional<std::uint32_t>& size = wanted[host.device_class];
    if (size && draft.class_of(device).sizes[*size] <= host.free_percent) {
      left_->emplace_back(host.free_percent, device);
    }
  }
  std::make_heap(left_->begin(), left_->end(), std::greater<>());
}

std::optional<std::uint32_t> BestFitWalk::next() {
  if (left_->empty()) return std::nullopt;
  std::pop_heap(left_->begin(), left_->end(), std::greater<>());
  const std::uint32_t device = left_->back().second;
  left_->pop_back();
  return device;
}

std::optional<Spot> best_remaining(Draft& draft, std::size_t model, const WantedSizes& wanted,
                                   const RateOfSize& least_worthwhile,
                                   BestFitWalk::Scratch* scratch) {
  BestFitWalk walk(draft, wanted, scratch);
  while (const auto device = walk.next()) {
    const DraftDevice& host = draft.devices()[*device];
    const auto size = size_taken(draft.class_of(*device), host.free_percent, host.partitions,
                                 *wanted[host.device_class]);
    if (!size) continue;
    const double most = draft.most_rate_of_new(*device, *size, model);
    if (most <= 0 || most < least_worthwhile(host.device_class, *size)) continue;
    return Spot{{host.device_class, device, *size}, std::min(most, draft.left(model))};
  }
  return std::nullopt;
}

WantedSizes taken_of_whole(const Problem& problem, WantedSizes wanted) {
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (!wanted[index]) continue;
    wanted[index] = size_taken(problem.classes()[index], kWholeDevice.percent, 0, *wanted[index]);
  }
  return wanted;
}

std::optional<Spot> best_unopened(const Draft& draft, std::size_t model,
                                  const WantedSizes& wanted) {
  return best_unopened(draft, model, wanted, [&](std::size_t device_class, std::uint32_t size) {
    return draft.problem().row(model, device_class, size).most_rate;
  });
}

std::optional<Spot> best_unopened(const Draft& draft, std::size_t model, const WantedSizes& wanted,
                                  const RateOfSize& rate_of_size) {
  const Problem& problem = draft.problem();
  std::optional<Spot> best;
  double most = 0;
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (!wanted[index] || !draft.can_open(index) || !draft.memory_fits_empty(model, index))
      continue;
    const DeviceClass& device_class = problem.classes()[index];
    if (device_class.sizes[*wanted[index]] > kWholeDevice.percent) continue;
    const double rate = std::min(draft.left(model), rate_of_size(index, *wanted[index]));
    const double per_percent = rate / device_class.sizes[*wanted[index]];
    if (per_percent > most) {
      best = Spot{{index, std::nullopt, *wanted[index]}, rate};
      most = per_percent;
    }
  }
  return best;
}

std::optional<Spot> largest_share(Draft& draft, std::size_t model) {
  std::optional<Spot> best;
  for (const std::uint32_t device : draft.roomy()) {
    const DraftDevice& host = draft.devices()[device];
    const DeviceClass& device_class = draft.class_of(device);
    for (std::uint32_t wanted = 0; wanted < device_class.sizes.size(); ++wanted) {
      const auto size = size_taken(device_class, host.free_percent, host.partitions, wanted);
      if (!size) break;
      const double rate = std::min(draft.left(model), draft.most_rate_of_new(device, *size, model));
      const double least = best ? best->rate : 0;
      if (rate > least || (best && rate == least && device < *best->device)) {
        best = Spot{{host.device_class, device, *size}, rate};
      }
      wanted = *size;
    }
  }
  return best;
}

std::size_t occupy(Draft& draft, std::size_t model, const Spot& spot) {
  const std::uint32_t device = spot.device ? *spot.device : draft.open(spot.device_class);
  return draft.add_gpulet(device, spot.size, model, std::min(spot.rate, draft.left(model)));
}

std::vector<std::size_t> models_by(const Problem& problem, Order order,
                                   double (*work)(const ModelDemand& demand)) {
  const double sign = order == Order::lightest_first ? 1 : -1;
  std::vector<std::pair<double, std::size_t>> amounts;
  amounts.reserve(problem.models().size());
  for (std::size_t model = 0; model < problem.models().size(); ++model) {
    amounts.emplace_back(sign * work(*problem.models()[model]), model);
  }
  return models_by(std::move(amounts));
}

std::vector<std::size_t> models_by(std::vector<std::pair<double, std::size_t>> amounts) {
  std::sort(amounts.begin(), amounts.end());
  std::vector<std::size_t> models;
  models.reserve(amounts.size());
  for (const auto& [amount, model] : amounts) models.push_back(model);
  return models;
}

namespace {

// Percent of devices, on the class where the model needs least.
double share_needed(const Problem& problem, std::size_t model, WantedSizes* scratch) {
  const double rate = problem.models()[model]->rate;
  least_sizes(problem, model, rate, scratch);
  double least = 0;
  for (std::size_t index = 0; index < scratch->size(); ++index) {
    const std::optional<std::uint32_t>& size = (*scratch)[index];
    if (!size) continue;
    const double gpulets = std::max(1.0, rate / problem.row(model, index, *size).most_rate);
    const double share = gpulets * problem.classes()[index].sizes[*size];
    if (least == 0 || share < least) least = share;
  }
  return least;
}

}  // namespace

std::vector<std::size_t> models_by_share(const Problem& problem) {
  WantedSizes scratch;
  std::vector<std::pair<double, std::size_t>> shares;
  shares.reserve(problem.models().size());
  for (std::size_t model = 0; model < problem.models().size(); ++model)
    shares.emplace_back(-share_needed(problem, model, &scratch), model);
  return models_by(std::move(shares));
}

double rate_of(const ModelDemand& demand) { return demand.rate; }

double rate_times_slo(const ModelDemand& demand) { return demand.rate * demand.slo_ms; }

}  // namespace gpulet::schedule
