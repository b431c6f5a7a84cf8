#include <fmt/format.h>

#include <map>
#include <string>

#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::partition {
namespace {

class SimulatedDriver : public PartitionDriver {
 public:
  explicit SimulatedDriver(std::optional<SimulatedInstances> instances) : instances_(instances) {}

  [[nodiscard]] std::string mechanism() const override { return "simulated"; }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (Status right = check_claim(claim, granted_.contains(claim.gpulet)); !right.ok())
      return right;
    if (Status possible = check_capacity(claim); !possible.ok()) return possible;
    granted_.emplace(claim.gpulet, claim.instance);
    return Grant();
  }
  [[nodiscard]] Status adjust(GpuletId gpulet, double cores) override {
    const std::string name = name_of(gpulet);
    if (!granted_.contains(gpulet))
      return {StatusCode::internal, name + " has no share on this device"};
    if (cores > 0) return {};
    return {StatusCode::invalid, fmt::format("{} can have above 0 cores; was {:f}", name, cores)};
  }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  [[nodiscard]] Status check_capacity(const Claim& claim) const {
    if (!instances_) {
      if (!claim.instance) return {};
      return {StatusCode::invalid,
              "the device is not divided by MIG, but the claim has the instance " +
                  to_string(*claim.instance)};
    }
    const MigGeometry& geometry = instances_->geometry;
    const std::string device = fmt::format("a device of the geometry {}", geometry.name());
    if (Status possible = check_mig_claim(geometry, claim, device); !possible.ok()) return possible;
    std::uint32_t inside = 0;
    for (const auto& [gpulet, there] : granted_) {
      if (*there == *claim.instance) {
        ++inside;
      } else if (!geometry.compatible(*there, *claim.instance)) {
        return {StatusCode::unavailable,
                fmt::format("the instance {} cannot be created while {} is in use by {}",
                            to_string(*claim.instance), to_string(*there), name_of(gpulet))};
      }
    }
    if (inside < instances_->processes_per_instance) return {};
    return {StatusCode::unavailable,
            fmt::format("the instance {} is in use by {} gpulets, the maximum",
                        to_string(*claim.instance), inside)};
  }

  const std::optional<SimulatedInstances> instances_;
  std::map<GpuletId, std::optional<MigInstance>> granted_;
};

}  // namespace

std::unique_ptr<PartitionDriver> make_simulated_driver(
    std::optional<SimulatedInstances> instances) {
  return std::make_unique<SimulatedDriver>(instances);
}

}  // namespace gpulet::partition
