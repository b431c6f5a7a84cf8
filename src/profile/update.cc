#include "gpulet/profile/update.h"

#include <algorithm>
#include <vector>

namespace gpulet::profile {
namespace {

ModelProfile updated(const ModelProfile& stored, ModelProfile measured,
                     const std::set<std::pair<Share, std::uint32_t>>& asked) {
  std::vector<LatencySample> samples = measured.latency.samples();
  for (const LatencySample& sample : stored.latency.samples()) {
    const bool found = std::any_of(samples.begin(), samples.end(), [&](const LatencySample& one) {
      return one.share == sample.share && one.batch == sample.batch;
    });
    if (!found && !asked.contains({sample.share, sample.batch})) samples.push_back(sample);
  }
  measured.latency = LatencyTable::create(std::move(samples)).value();  // no cell stands twice
  for (const Utilization& row : stored.utilization) {
    const bool found = std::any_of(
        measured.utilization.begin(), measured.utilization.end(),
        [&](const Utilization& one) { return one.share == row.share && one.batch == row.batch; });
    if (!found) measured.utilization.push_back(row);
  }
  if (!measured.memory_mb) measured.memory_mb = stored.memory_mb;
  if (!measured.kernels) measured.kernels = stored.kernels;
  if (!measured.input_bytes) measured.input_bytes = stored.input_bytes;
  if (!measured.output_bytes) measured.output_bytes = stored.output_bytes;
  if (!measured.controller) measured.controller = stored.controller;
  return measured;
}

}  // namespace

Profile updated(Profile stored, Profile measured, const CellSet& asked) {
  for (auto& [key, text] : measured.provenance) stored.provenance.insert_or_assign(key, text);
  if (measured.pcie_gbps) stored.pcie_gbps = measured.pcie_gbps;
  for (auto& [name, model] : measured.models) {
    const auto before = stored.models.find(name);
    if (before == stored.models.end()) {
      stored.models.emplace(name, std::move(model));
      continue;
    }
    const auto cells = asked.find(name);
    before->second = updated(before->second, std::move(model),
                             cells == asked.end() ? CellSet::mapped_type() : cells->second);
  }
  return stored;
}

}  // namespace gpulet::profile
