#include "schedule/candidates.h"

#include <algorithm>

namespace gpulet::schedule {

bool is_crowded(const PlanContext& context) {
  constexpr std::size_t kModelsPerDevice = 64;
  return context.input().interference != nullptr &&
         context.models().size() > kModelsPerDevice * context.device_budget();
}

std::optional<std::uint32_t> knee_size(const PlanContext& context, std::size_t model,
                                       std::size_t device_class) {
  const std::vector<int>& sizes = context.classes()[device_class].sizes;
  const std::uint32_t best_size = context.on_class(model, device_class).best_size;
  const double best_rate = context.curve(model, device_class, best_size).max_rate;
  if (best_rate <= 0) return std::nullopt;
  std::optional<std::uint32_t> knee;
  double highest = -std::numeric_limits<double>::infinity();
  for (std::uint32_t size = 0; size < sizes.size(); ++size) {
    const double rate = context.curve(model, device_class, size).max_rate;
    if (rate <= 0) continue;
    const double above = rate / best_rate - static_cast<double>(sizes[size]) / sizes.back();
    if (above > highest + kRoundingSlack) {
      highest = above;
      knee = size;
    }
  }
  return knee;
}

std::optional<std::uint32_t> required_size(const PlanContext& context, std::size_t model,
                                           std::size_t device_class, double rate) {
  const std::vector<int>& sizes = context.classes()[device_class].sizes;
  for (std::uint32_t size = 0; size < sizes.size(); ++size) {
    if (context.curve(model, device_class, size).max_rate >= rate) return size;
  }
  return std::nullopt;
}

void least_sizes(const PlanContext& context, std::size_t model, double rate, WantedSizes* sizes) {
  sizes->resize(context.classes().size());
  for (std::size_t index = 0; index < sizes->size(); ++index) {
    std::optional<std::uint32_t>& size = (*sizes)[index];
    size = required_size(context, model, index, rate);
    const std::uint32_t best = context.on_class(model, index).best_size;
    if (!size && context.curve(model, index, best).max_rate > 0) size = best;
  }
}

std::optional<Candidate> first_remaining(const PlanBuilder& builder, const WantedSizes& wanted,
                                         const CandidateAt& at, std::size_t most_tried) {
  std::vector<std::pair<int, std::uint32_t>> remaining;  // a heap with the least share on top
  for (const std::uint32_t device : builder.divisible_devices()) {
    const BuilderDevice& host = builder.devices()[device];
    const std::optional<std::uint32_t>& size = wanted[host.device_class];
    if (size && builder.class_of(device).sizes[*size] <= host.free_percent) {
      remaining.emplace_back(host.free_percent, device);
    }
  }
  std::make_heap(remaining.begin(), remaining.end(), std::greater<>());
  for (std::size_t tried = 0; !remaining.empty() && tried < most_tried; ++tried) {
    std::pop_heap(remaining.begin(), remaining.end(), std::greater<>());
    const std::uint32_t device = remaining.back().second;
    remaining.pop_back();
    auto candidate = at(device, *wanted[builder.devices()[device].device_class]);
    if (candidate) return candidate;
  }
  return std::nullopt;
}

std::optional<Candidate> best_remaining(PlanBuilder& builder, std::size_t model,
                                        const WantedSizes& wanted,
                                        const RateOfSize& least_worthwhile,
                                        std::size_t most_tried) {
  const CandidateAt at = [&](std::uint32_t device,
                             std::uint32_t least) -> std::optional<Candidate> {
    const BuilderDevice& host = builder.devices()[device];
    const auto size =
        size_taken(builder.class_of(device), host.free_percent, host.partitions, least);
    if (!size) return std::nullopt;
    const double most = builder.max_rate_of_new(device, *size, model);
    if (most <= 0 || most < least_worthwhile(host.device_class, *size)) return std::nullopt;
    return Candidate{host.device_class, device, *size, std::min(most, builder.unplaced(model))};
  };
  return first_remaining(builder, wanted, at, most_tried);
}

WantedSizes taken_of_whole(const PlanContext& context, WantedSizes wanted) {
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (!wanted[index]) continue;
    wanted[index] = size_taken(context.classes()[index], kWholeDevice.percent, 0, *wanted[index]);
  }
  return wanted;
}

std::optional<Candidate> best_unopened(const PlanBuilder& builder, std::size_t model,
                                       const WantedSizes& wanted, const RateOfSize& rate_of_size) {
  const PlanContext& context = builder.context();
  std::optional<Candidate> best;
  double most_per_percent = 0;
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (!wanted[index] || !builder.can_open(index) || !builder.memory_fits_empty(model, index))
      continue;
    const DeviceClass& device_class = context.classes()[index];
    if (device_class.sizes[*wanted[index]] > kWholeDevice.percent) continue;
    const double most = rate_of_size ? rate_of_size(index, *wanted[index])
                                     : context.curve(model, index, *wanted[index]).max_rate;
    const double rate = std::min(builder.unplaced(model), most);
    const double per_percent = rate / device_class.sizes[*wanted[index]];
    if (per_percent > most_per_percent) {
      best = Candidate{index, std::nullopt, *wanted[index], rate};
      most_per_percent = per_percent;
    }
  }
  return best;
}

std::optional<Candidate> largest_share(PlanBuilder& builder, std::size_t model) {
  std::optional<Candidate> best;
  for (const std::uint32_t device : builder.divisible_devices()) {
    const BuilderDevice& host = builder.devices()[device];
    const DeviceClass& device_class = builder.class_of(device);
    for (std::uint32_t wanted = 0; wanted < device_class.sizes.size(); ++wanted) {
      const auto size = size_taken(device_class, host.free_percent, host.partitions, wanted);
      if (!size) break;
      const double rate =
          std::min(builder.unplaced(model), builder.max_rate_of_new(device, *size, model));
      const double least = best ? best->rate : 0;
      if (rate > least || (best && rate == least && device < *best->device)) {
        best = Candidate{host.device_class, device, *size, rate};
      }
      wanted = *size;
    }
  }
  return best;
}

bool serve_rest(PlanBuilder& builder, std::size_t model) {
  const std::optional<SpareCapacity> spare = largest_spare_capacity(builder, model);
  const double negligible = kRoundingSlack * builder.context().models()[model]->rate;
  const std::optional<Candidate> candidate = largest_share(builder, model);
  if (candidate && candidate->rate > (spare ? spare->rate : negligible)) {
    occupy(builder, model, *candidate);
    return true;
  }
  return add_spare(builder, model, spare);
}

std::size_t occupy(PlanBuilder& builder, std::size_t model, const Candidate& candidate) {
  const std::uint32_t device =
      candidate.device ? *candidate.device : builder.open(candidate.device_class);
  return builder.add_gpulet(device, candidate.size, model,
                            std::min(candidate.rate, builder.unplaced(model)));
}

std::vector<std::size_t> models_by(const PlanContext& context, Order order,
                                   double (*work)(const ModelDemand& demand)) {
  const double sign = order == Order::lightest_first ? 1 : -1;
  std::vector<std::pair<double, std::size_t>> amounts;
  amounts.reserve(context.models().size());
  for (std::size_t model = 0; model < context.models().size(); ++model) {
    amounts.emplace_back(sign * work(*context.models()[model]), model);
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
double share_needed(const PlanContext& context, std::size_t model, WantedSizes* scratch) {
  const double rate = context.models()[model]->rate;
  least_sizes(context, model, rate, scratch);
  double least = 0;
  for (std::size_t index = 0; index < scratch->size(); ++index) {
    const std::optional<std::uint32_t>& size = (*scratch)[index];
    if (!size) continue;
    const double gpulets = std::max(1.0, rate / context.curve(model, index, *size).max_rate);
    const double share = gpulets * context.classes()[index].sizes[*size];
    if (least == 0 || share < least) least = share;
  }
  return least;
}

}  // namespace

std::vector<std::size_t> models_by_share(const PlanContext& context) {
  WantedSizes scratch;
  std::vector<std::pair<double, std::size_t>> shares;
  shares.reserve(context.models().size());
  for (std::size_t model = 0; model < context.models().size(); ++model)
    shares.emplace_back(-share_needed(context, model, &scratch), model);
  return models_by(std::move(shares));
}

double rate_of(const ModelDemand& demand) { return demand.rate; }

double rate_times_slo(const ModelDemand& demand) { return demand.rate * demand.slo_ms; }

}  // namespace gpulet::schedule
