#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/profile/estimate.h"

namespace gpulet::profile {
namespace {

ModelProfile profile_of(const config::Measurement& stated) {
  std::vector<LatencySample> samples;
  for (const config::MeasuredCell& cell : stated.cells) {
    samples.push_back({.batch = cell.batch,
                       .share = cell.share,
                       .latency_ms = cell.latency_ms,
                       .p99_ms = cell.p99_ms,
                       .cv = cell.cv});
  }
  // Reading the entry has checked what could fail.
  return {LatencyTable::create(std::move(samples)).value(), {}, stated.memory_mb};
}

}  // namespace

config::Measurement measurement_of(const Profile& measured, const config::ModelConfig& model) {
  config::Measurement measurement;
  for (const config::ModelConfig& one : config::buckets_of(model)) {
    const ModelProfile& profile = *measured.find(one.name);
    for (const LatencySample& sample : profile.latency.samples()) {
      measurement.cells.push_back({one.bucket ? one.bucket->length : 0, sample.batch, sample.share,
                                   sample.latency_ms, sample.p99_ms, sample.cv});
    }
    measurement.memory_mb = profile.memory_mb;  // the longest one's
  }
  return measurement;
}

void state_figures(const config::ModelConfig& entry, ProfileSet& profiles) {
  for (const auto& [type, stated] : entry.measured) {
    Profile& profile = profiles[type];
    if (profile.name.empty()) profile.name = type;
    profile.models.insert_or_assign(entry.name, profile_of(stated));
  }
  if (!entry.memory_mb) return;
  for (auto& [type, profile] : profiles) {
    const auto measured = profile.models.find(entry.name);
    if (measured != profile.models.end()) measured->second.memory_mb = entry.memory_mb;
  }
}

}  // namespace gpulet::profile
