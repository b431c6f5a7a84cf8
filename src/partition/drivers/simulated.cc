#include "gpulet/partition/drivers/simulated.h"

#include <set>

namespace gpulet::partition {
namespace {

class SimulatedDriver : public PartitionDriver {
 public:
  [[nodiscard]] std::string mechanism() const override { return "simulated"; }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (!granted_.insert(claim.gpulet).second) {
      return Status(StatusCode::internal,
                    "gpulet " + std::to_string(claim.gpulet.value) + " has a share already");
    }
    return Grant();
  }
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  std::set<GpuletId> granted_;
};

}  // namespace

std::unique_ptr<PartitionDriver> make_simulated_driver() {
  return std::make_unique<SimulatedDriver>();
}

}  // namespace gpulet::partition
