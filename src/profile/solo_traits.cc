#include "profile/solo_traits.h"

#include <algorithm>
#include <cmath>

namespace gpulet::profile {
namespace {

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

UtilizationTable::Fractions between(const UtilizationTable::Fractions& a,
                                    const UtilizationTable::Fractions& b, double part) {
  return {.l2 = std::lerp(a.l2, b.l2, part), .dram = std::lerp(a.dram, b.dram, part)};
}

}  // namespace

UtilizationTable::UtilizationTable(const std::vector<Utilization>& samples) {
  std::vector<Utilization> sorted = samples;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.share != b.share ? a.share < b.share : a.batch < b.batch;
  });
  for (const Utilization& sample : sorted) {
    if (rows_.empty() || rows_.back().share != sample.share) {
      rows_.push_back({.share = sample.share, .batches = {}, .fractions = {}});
    }
    rows_.back().batches.push_back(sample.batch);
    rows_.back().fractions.push_back({.l2 = sample.l2, .dram = sample.dram});
  }
}

UtilizationTable::Fractions UtilizationTable::within_row(const Row& row, std::uint32_t batch) {
  const auto above = std::lower_bound(row.batches.begin(), row.batches.end(), batch);
  if (above == row.batches.end()) return row.fractions.back();
  const auto index = static_cast<std::size_t>(above - row.batches.begin());
  if (index == 0 || *above == batch) return row.fractions[index];
  const double below = row.batches[index - 1];
  return between(row.fractions[index - 1], row.fractions[index],
                 (batch - below) / (*above - below));
}

UtilizationTable::Fractions UtilizationTable::at(std::uint32_t batch, Share share) const {
  if (rows_.empty()) return {};
  const auto larger =
      std::lower_bound(rows_.begin(), rows_.end(), share,
                       [](const Row& row, Share wanted) { return row.share < wanted; });
  if (larger == rows_.end()) return within_row(rows_.back(), batch);
  if (larger == rows_.begin() || larger->share == share) return within_row(*larger, batch);
  const auto smaller = larger - 1;
  const double inverse_larger = 1.0 / larger->share.percent;
  const double part =
      (1.0 / share.percent - inverse_larger) / (1.0 / smaller->share.percent - inverse_larger);
  return between(within_row(*larger, batch), within_row(*smaller, batch), part);
}

SoloTraitsTable::SoloTraitsTable(const Profile& profile) {
  for (const auto& [name, known] : profile.models) {
    Model model{.number = static_cast<std::uint32_t>(models_.size()),
                .first_cell = static_cast<std::uint32_t>(cells_.size()),
                .latency = &known.latency,
                .least_ms = known.latency.samples().front().latency_ms,
                .utilization = UtilizationTable(known.utilization),
                .batches = {},
                .sizes = {}};
    for (const LatencySample& sample : known.latency.samples()) {
      model.batches.push_back(sample.batch);
      model.sizes.push_back(sample.share);
      model.least_ms = std::min(model.least_ms, sample.latency_ms);
    }
    sort_unique(model.batches);
    sort_unique(model.sizes);
    for (const Share size : model.sizes) {
      for (const std::uint32_t batch : model.batches) {
        cells_.push_back(look_up(model, batch, size).value_or(SoloTraits{}));
      }
    }
    has_utilization_ = has_utilization_ && !known.utilization.empty();
    models_.emplace(name, std::move(model));
  }
}

std::uint32_t SoloTraitsTable::number_of(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? BatchTraits::kUnknown : found->second.number;
}

std::optional<SoloTraits> SoloTraitsTable::look_up(const Model& model, std::uint32_t batch,
                                                   Share share) {
  const auto latency_ms = model.latency->latency_ms(batch, share);
  if (!latency_ms) return std::nullopt;
  double widest_ms = *latency_ms;
  for (auto size = model.sizes.rbegin(); size != model.sizes.rend() && *size > share; ++size) {
    if (const auto answer = model.latency->latency_ms(batch, *size)) {
      widest_ms = *answer;
      break;
    }
  }
  const UtilizationTable::Fractions used = model.utilization.at(batch, share);
  return SoloTraits{.log2_batch = std::log2(batch),
                    .share = share.fraction(),
                    .log_latency_ms = std::log(*latency_ms),
                    .flatness = widest_ms / *latency_ms,
                    .log_stretch = std::log(*latency_ms / model.least_ms),
                    .log_work = std::log(*latency_ms * share.fraction() / batch),
                    .l2 = used.l2,
                    .dram = used.dram};
}

std::optional<SoloTraits> SoloTraitsTable::solo(std::string_view model, std::uint32_t batch,
                                                Share share) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return std::nullopt;
  return look_up(found->second, batch, share);
}

BatchTraits SoloTraitsTable::traits(std::string_view name, std::uint32_t batch, Share share) const {
  const auto found = models_.find(name);
  if (found == models_.end() || !found->second.latency->latency_ms(batch, share)) return {};
  const Model& model = found->second;
  // The latency answers, so a measured batch no smaller than this one answers too.
  const auto batches = model.batches.begin();
  const auto above = std::lower_bound(batches, model.batches.end(), batch);
  const bool measured = above == batches || *above == batch;
  const auto below = measured ? above : above - 1;
  BatchTraits traits;
  traits.model = model.number;
  traits.log2_percent = std::log2(share.percent);
  if (!measured) traits.part = static_cast<double>(batch - *below) / (*above - *below);
  const auto size = std::lower_bound(model.sizes.begin(), model.sizes.end(), share);
  if (size != model.sizes.end() && *size == share) {
    const auto row = static_cast<std::size_t>(size - model.sizes.begin()) * model.batches.size();
    const auto cell = [&](auto at) {
      return static_cast<std::uint32_t>(model.first_cell + row +
                                        static_cast<std::size_t>(at - batches));
    };
    traits.cell_below = cell(below);
    traits.cell_above = cell(above);
    traits.below = cells_[traits.cell_below];
    traits.above = cells_[traits.cell_above];
    return traits;
  }
  const auto at_below = look_up(model, *below, share);
  const auto at_above = measured ? at_below : look_up(model, *above, share);
  if (!at_below || !at_above) return {};
  traits.below = *at_below;
  traits.above = *at_above;
  return traits;
}

}  // namespace gpulet::profile
