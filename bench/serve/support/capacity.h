// Capacity: what a frontend's policy can place on the devices of a site, found with the same code:
// "elastic", with its headroom for chance and the frontend's margin, alone and in the scaling loop.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bench/serve/support/site.h"

namespace gpulet::bench {

class Capacity {
 public:
  explicit Capacity(const SiteOptions& site);
  ~Capacity();
  Capacity(const Capacity&) = delete;
  Capacity& operator=(const Capacity&) = delete;

  // The highest factor by which the rates of all models can be multiplied so that the devices still
  // serve them.
  [[nodiscard]] double schedulable_scale() const;
  // Devices of a plan made anew for these rates (beside the models); nothing where it leaves some
  // unserved.
  [[nodiscard]] std::optional<std::uint32_t> devices_for(const std::vector<double>& rates) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::bench
