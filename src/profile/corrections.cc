#include <algorithm>
#include <utility>
#include <vector>

#include "gpulet/profile/estimate.h"

namespace gpulet::profile {
namespace {

std::vector<std::uint32_t> measured_batches(const LatencyTable& table) {
  std::vector<std::uint32_t> batches;
  for (const LatencySample& sample : table.samples()) batches.push_back(sample.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

bool has_size(const LatencyTable& table, Share size) {
  return std::any_of(table.samples().begin(), table.samples().end(),
                     [size](const LatencySample& sample) { return sample.share == size; });
}

LatencyTable corrected(const LatencyTable& table, const ModelCorrection& correction) {
  std::vector<LatencySample> samples = table.samples();
  for (LatencySample& sample : samples) {
    const double factor = correction.at(sample.share);
    sample.latency_ms *= factor;
    if (sample.p99_ms) *sample.p99_ms *= factor;
  }
  // A corrected size between two measured ones gets cells of its own.
  for (const auto& [size, factor] : correction.at_size) {
    if (has_size(table, size)) continue;
    for (const std::uint32_t batch : measured_batches(table)) {
      const auto latency_ms = table.latency_ms(batch, size);
      if (!latency_ms) continue;
      LatencySample sample;
      sample.batch = batch;
      sample.share = size;
      sample.latency_ms = *latency_ms * factor;
      sample.cv = table.cv(batch, size);
      samples.push_back(sample);
    }
  }
  return LatencyTable::create(std::move(samples)).value();
}

}  // namespace

double ModelCorrection::at(Share size) const {
  const auto found = at_size.find(size);
  return found == at_size.end() ? factor : found->second;
}

double factor_of(const Corrections& corrections, std::string_view device_type,
                 std::string_view model, Share size) {
  const auto type = corrections.find(device_type);
  if (type == corrections.end()) return 1;
  const auto found = type->second.find(model);
  return found == type->second.end() ? 1 : found->second.at(size);
}

ProfileSet corrected(const ProfileSet& profiles, const Corrections& corrections) {
  ProfileSet result = profiles;
  for (const auto& [type, models] : corrections) {
    const auto profile = result.find(type);
    if (profile == result.end()) continue;
    for (const auto& [name, correction] : models) {
      const auto model = profile->second.models.find(name);
      if (model == profile->second.models.end()) continue;
      model->second.latency = corrected(model->second.latency, correction);
      for (auto& [processes, table] : model->second.shared_latency)
        table = corrected(table, correction);
    }
  }
  return result;
}

}  // namespace gpulet::profile
