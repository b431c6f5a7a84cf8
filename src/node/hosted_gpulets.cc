#include "node/hosted_gpulets.h"

#include <algorithm>
#include <utility>

namespace gpulet::node {

HostedGpulet* HostedGpulets::find(GpuletId gpulet) {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? nullptr : &found->second;
}

const HostedGpulet* HostedGpulets::find(GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? nullptr : &found->second;
}

HostedGpulet& HostedGpulets::add(HostedGpulet made) {
  const GpuletId id = made.id();
  HostedGpulet& gpulet = gpulets_.emplace(id, std::move(made)).first->second;
  std::vector<HostedGpulet*>& neighbours = on_device_[gpulet.device()];
  const auto by_id = [](const auto* a, const auto* b) { return a->id() < b->id(); };
  neighbours.insert(std::upper_bound(neighbours.begin(), neighbours.end(), &gpulet, by_id),
                    &gpulet);
  return gpulet;
}

void HostedGpulets::erase_gone() {
  if (!some_gone_) return;
  for (auto& neighbours : on_device_) {
    std::erase_if(neighbours, [](const auto* one) { return one->phase() == GpuletPhase::gone; });
  }
  std::erase_if(gpulets_,
                [](const auto& entry) { return entry.second.phase() == GpuletPhase::gone; });
  some_gone_ = false;
}

std::set<std::string, std::less<>> HostedGpulets::files_in_use() const {
  std::set<std::string, std::less<>> files;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::failed || gpulet.phase() == GpuletPhase::gone) continue;
    for (const auto& model : gpulet.models()) files.insert(model.sha256);
  }
  return files;
}

}  // namespace gpulet::node
