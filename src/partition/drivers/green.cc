#include <cmath>
#include <set>
#include <utility>

#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::partition {
namespace {

constexpr std::size_t kStreamsPerBlock = 2;

class GreenDriver final : public PartitionDriver {
 public:
  explicit GreenDriver(GreenGpu gpu) : gpu_(std::move(gpu)) {}

  [[nodiscard]] std::string mechanism() const override { return "green"; }
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = gpu_.sizes.percent_of(gpu_.sizes.step),
            .change = ChangeOfSize::in_place,
            .fault = FaultReach::device,
            .limits_memory = false};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (Status possible = check_green_size(gpu_, claim.share); !possible.ok()) return possible;
    if (granted_.contains(claim.gpulet)) {
      return Status(StatusCode::internal, name_of(claim.gpulet) + " has a share already");
    }
    const std::uint32_t blocks = gpu_.sizes.divisible / gpu_.sizes.step;
    if (granted_.size() >= kStreamsPerBlock * blocks) {
      return Status(StatusCode::unavailable,
                    gpu_.uuid + " already has " + std::to_string(granted_.size()) +
                        " gpulets on its " + std::to_string(blocks) + " blocks of " +
                        std::to_string(gpu_.sizes.step) + " SMs; plan fewer gpulets for it");
    }
    granted_.insert(claim.gpulet);
    return Grant{{{"CUDA_VISIBLE_DEVICES", gpu_.uuid},
                  {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                  {"CUDA_MPS_PIPE_DIRECTORY", gpu::kNoMpsDirectory},
                  {kDeviceVariable, "cuda:0"},
                  {kExpectedShareVariable, std::to_string(claim.share.percent)},
                  {kDeviceSmsVariable, std::to_string(gpu_.sizes.sms)}}};
  }

  // The stream has its SMs from the first batch on, and reports them.
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  const GreenGpu gpu_;
  std::set<GpuletId> granted_;
};

}  // namespace

Status check_green_size(const GreenGpu& gpu, Share share) {
  const gpu::SmGroups& sizes = gpu.sizes;
  if (share.fraction() * sizes.sms >= sizes.smallest) return {};
  const double least = std::ceil(sizes.percent_of(sizes.smallest));
  return {StatusCode::invalid, "a share of " + std::to_string(share.percent) + " % of " + gpu.uuid +
                                   " is below its smallest group of " +
                                   std::to_string(sizes.smallest) + " of " +
                                   std::to_string(sizes.sms) + " SMs; make it " +
                                   std::to_string(static_cast<int>(least)) + " % or more"};
}

std::unique_ptr<PartitionDriver> make_green_driver(const GreenGpu& gpu) {
  return std::make_unique<GreenDriver>(gpu);
}

}  // namespace gpulet::partition
