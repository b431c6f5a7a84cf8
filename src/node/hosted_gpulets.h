// HostedGpulets: the gpulets of the node. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "node/hosted_gpulet.h"

namespace gpulet::node {

class HostedGpulets {
 public:
  explicit HostedGpulets(std::size_t devices) : on_device_(devices) {}

  [[nodiscard]] bool empty() const { return gpulets_.empty(); }
  [[nodiscard]] std::map<GpuletId, HostedGpulet>& all() { return gpulets_; }
  [[nodiscard]] const std::map<GpuletId, HostedGpulet>& all() const { return gpulets_; }
  // Null: there is none of that id.
  [[nodiscard]] HostedGpulet* find(GpuletId gpulet);
  [[nodiscard]] const HostedGpulet* find(GpuletId gpulet) const;
  // In the order of their ids.
  [[nodiscard]] const std::vector<HostedGpulet*>& on_device(std::uint32_t device) const {
    return on_device_[device];
  }
  // REQUIRES: there is none of its id.
  HostedGpulet& add(HostedGpulet gpulet);
  // Some gpulet is gone: erase_gone() erases it.
  void set_some_gone() { some_gone_ = true; }
  void erase_gone();
  // By SHA-256, those of gpulets that did not fail.
  [[nodiscard]] std::set<std::string, std::less<>> files_in_use() const;

 private:
  std::map<GpuletId, HostedGpulet> gpulets_;
  std::vector<std::vector<HostedGpulet*>> on_device_;  // by device; in the order of their ids
  bool some_gone_ = false;                             // gpulets_ holds gpulets to erase
};

}  // namespace gpulet::node
