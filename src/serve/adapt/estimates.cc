#include "serve/adapt/estimates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

namespace gpulet::serve {
namespace {

// On a whole device, and longer on a part of it: so that some plan serves the model, whose gpulet
// then shows what its batches take, and not with the smallest share, which would load it slowly.
constexpr double kPlaceholderOfObjective = 1.0 / 8;
// What a leader may have planned with; anything else is not adopted.
constexpr double kLongestAdoptedMs = 3'600'000;

profile::LatencyTable placeholder(const std::set<Share>& sizes, std::uint32_t largest,
                                  double slo_ms) {
  std::vector<profile::LatencySample> samples;
  for (const Share size : sizes) {
    for (const std::uint32_t batch : std::set<std::uint32_t>{1, largest}) {
      samples.push_back({.batch = batch,
                         .share = size,
                         .latency_ms = kPlaceholderOfObjective * slo_ms / size.fraction()});
    }
  }
  return profile::LatencyTable::create(std::move(samples)).value();
}

}  // namespace

std::uint32_t largest_first_probe(const schedule::Device& device) {
  return schedule::is_cpu(device) ? 4 : 32;
}

void Estimates::add(const EstimatedPlace& place, const std::string& version,
                    const std::vector<profile::LatencySample>& probes) {
  Known& known = known_[place];
  if (known.version != version || known.adopted) known = {version, {}};
  for (const profile::LatencySample& probe : probes) {
    std::erase_if(known.cells, [&probe](const auto& one) {
      return one.batch == probe.batch && one.share == probe.share;
    });
    known.cells.push_back(probe);
  }
}

void Estimates::adopt(const schedule::DeviceKey& device, const GpuletReport& gpulet) {
  const DeviceOffer* const offer = backends_.offer_of(device);
  const bool serves =
      gpulet.state == GpuletState::ready && gpulet.part.service == schedule::Service::rounds;
  if (!enabled_ || offer == nullptr || !serves) return;
  for (const schedule::Assignment& one : gpulet.part.assignments) {
    const auto loaded =
        std::find_if(gpulet.models.begin(), gpulet.models.end(),
                     [&one](const schedule::RunningModel& held) { return held.name == one.model; });
    const EstimatedPlace place{offer->device.type, one.model};
    const double latency_ms = one.latency_ms / std::max(1.0, one.slowdown);
    const bool plausible = one.batch > 0 && gpulet.size.valid() && std::isfinite(latency_ms) &&
                           latency_ms > 0 && latency_ms <= kLongestAdoptedMs;
    const auto known = known_.find(place);
    if (loaded == gpulet.models.end() || !plausible) continue;
    if (known != known_.end() && !known->second.adopted) continue;
    add(place, loaded->version,
        {{.batch = one.batch, .share = gpulet.size, .latency_ms = latency_ms}});
    known_[place].adopted = true;
  }
}

bool Estimates::estimates(const EstimatedPlace& place) const {
  const auto type = profiles_.profiles->find(place.type);
  if (type == profiles_.profiles->end()) return false;
  const profile::ModelProfile* const model = type->second.find(place.model);
  return model != nullptr && model->estimate.has_value();
}

const std::vector<profile::LatencySample>* Estimates::probes_of(const EstimatedPlace& place,
                                                                const std::string& version) const {
  const auto known = known_.find(place);
  const bool probed =
      known != known_.end() && !known->second.adopted && known->second.version == version;
  return probed ? &known->second.cells : nullptr;
}

Estimates::OfferedTypes Estimates::offered_types() const {
  OfferedTypes types;
  for (const auto& [id, backend] : backends_.backends()) {
    for (const DeviceOffer& offer : backend.devices) {
      OfferedType& type = types[offer.device.type];
      type.sizes.insert(offer.device.sizes.begin(), offer.device.sizes.end());
      type.first_probe = std::max(type.first_probe, largest_first_probe(offer.device));
    }
  }
  std::erase_if(types, [](const auto& entry) { return entry.second.sizes.empty(); });
  return types;
}

bool Estimates::measured_on_any(const OfferedTypes& types, const std::string& model) const {
  return std::any_of(types.begin(), types.end(), [&](const auto& entry) {
    const auto profile = profiles_.measured->find(entry.first);
    return profile != profiles_.measured->end() && profile->second.find(model) != nullptr;
  });
}

std::vector<Estimates::Wanted> Estimates::wanted() const {
  const OfferedTypes types = offered_types();
  std::vector<Wanted> all;
  for (const auto& [name, known] : models_.all()) {
    if (models_.lacks_file(known) || measured_on_any(types, name)) continue;
    const ServedModel& served = models_.served(known.wanted().index);
    const auto probed_on = [&known_on = known_, &model = name](const auto& entry) {
      return known_on.contains({entry.first, model});
    };
    const bool probed = std::any_of(types.begin(), types.end(), probed_on);
    for (const auto& entry : types) {
      if (probed && !probed_on(entry)) continue;
      const EstimatedPlace place{entry.first, name};
      const auto cells = known_.find(place);
      all.push_back(
          {place,
           cells == known_.end() ? std::vector<profile::LatencySample>() : cells->second.cells,
           entry.second, served.max_batch, served.slo_ms});
    }
  }
  return all;
}

profile::ModelProfile Estimates::estimate(const Wanted& one) const {
  if (one.cells.empty()) {
    const std::uint32_t largest = std::min(one.max_batch, one.offered.first_probe);
    profile::ModelProfile model{placeholder(one.offered.sizes, largest, one.slo_ms), {}, {}};
    model.estimate = profile::EstimateSource{};
    return model;
  }
  const auto type = profiles_.measured->find(one.place.type);
  std::optional<profile::NearestModel> nearest;
  if (type != profiles_.measured->end()) nearest = profile::nearest_model(type->second, one.cells);
  const profile::EstimatedCells cells{{one.offered.sizes.begin(), one.offered.sizes.end()},
                                      one.max_batch};
  profile::ModelProfile model{
      profile::estimated_latencies(nearest ? nearest->latency : nullptr, one.cells, cells), {}, {}};
  model.estimate = profile::EstimateSource{nearest ? nearest->name : "", one.cells.size()};
  return model;
}

void Estimates::refresh() {
  if (!enabled_) return;
  std::erase_if(known_,
                [this](const auto& entry) { return models_.find(entry.first.model) == nullptr; });
  std::vector<Wanted> now = wanted();
  if (built_for_ == profiles_.measured && built_ == now) return;
  built_for_ = profiles_.measured;
  built_ = std::move(now);
  build();
}

void Estimates::build() {
  estimated_.clear();
  unprobed_.clear();
  status_.clear();
  if (built_.empty()) {
    profiles_.profiles = profiles_.measured;
    return;
  }
  profile::ProfileSet profiles = *profiles_.measured;
  for (const Wanted& one : built_) {
    profile::Profile& of_type = profiles[one.place.type];
    if (of_type.name.empty()) of_type.name = one.place.type;
    profile::ModelProfile model = estimate(one);
    estimated_.insert(one.place.model);
    if (one.cells.empty()) unprobed_.insert(one.place.model);
    status_.push_back(
        {one.place.model, one.place.type, model.estimate->nearest, model.estimate->probes});
    of_type.models.insert_or_assign(one.place.model, std::move(model));
  }
  std::sort(status_.begin(), status_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.device_type, a.model) < std::tie(b.device_type, b.model);
  });
  profiles_.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles));
}

}  // namespace gpulet::serve
