#include <map>
#include <string>

#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::partition {
namespace {

Status check_instance(const MigGeometry& geometry, const Claim& claim) {
  const std::string device = "a device of the geometry " + std::string(geometry.name());
  if (!claim.instance) {
    return {StatusCode::invalid,
            device + " needs a MIG instance for each gpulet; the claim has none"};
  }
  if (!geometry.exists(*claim.instance)) {
    return {StatusCode::invalid, device + " has no instance " + to_string(*claim.instance)};
  }
  if (const Share share = geometry.share_of(claim.instance->slices); claim.share != share) {
    return {StatusCode::invalid, "the instance " + to_string(*claim.instance) + " is " +
                                     std::to_string(share.percent) + " % of its device, not " +
                                     std::to_string(claim.share.percent) + " %"};
  }
  return {};
}

class SimulatedDriver : public PartitionDriver {
 public:
  explicit SimulatedDriver(std::optional<SimulatedInstances> instances) : instances_(instances) {}

  [[nodiscard]] std::string mechanism() const override { return "simulated"; }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (granted_.contains(claim.gpulet)) {
      return Status(StatusCode::internal, name_of(claim.gpulet) + " has a share already");
    }
    if (Status possible = check_capacity(claim); !possible.ok()) return possible;
    granted_.emplace(claim.gpulet, claim.instance);
    return Grant();
  }
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  [[nodiscard]] Status adjust(GpuletId gpulet, double cores) override {
    const std::string name = name_of(gpulet);
    if (!granted_.contains(gpulet))
      return {StatusCode::internal, name + " has no share on this device"};
    if (cores > 0) return {};
    return {StatusCode::invalid, name + " can have above 0 cores; was " + std::to_string(cores)};
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
    if (Status possible = check_instance(geometry, claim); !possible.ok()) return possible;
    std::uint32_t inside = 0;
    for (const auto& [gpulet, there] : granted_) {
      if (*there == *claim.instance) {
        ++inside;
      } else if (!geometry.compatible(*there, *claim.instance)) {
        return {StatusCode::unavailable,
                "the instance " + to_string(*claim.instance) + " cannot be created while " +
                    to_string(*there) + " is in use by gpulet " + std::to_string(gpulet.value)};
      }
    }
    if (inside < instances_->processes_per_instance) return {};
    return {StatusCode::unavailable, "the instance " + to_string(*claim.instance) +
                                         " is in use by " + std::to_string(inside) +
                                         " gpulets, the maximum"};
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
