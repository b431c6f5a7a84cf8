#include <fmt/format.h>

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
    if (Status right = check_claim(claim, granted_.contains(claim.gpulet)); !right.ok())
      return right;
    if (Status possible = check_green_size(gpu_, claim.share); !possible.ok()) return possible;
    const std::uint32_t blocks = gpu_.sizes.divisible / gpu_.sizes.step;
    if (granted_.size() >= kStreamsPerBlock * blocks) {
      return Status(
          StatusCode::unavailable,
          fmt::format(
              "{} already has {} gpulets on its {} blocks of {} SMs; plan fewer gpulets for it",
              gpu_.uuid, granted_.size(), blocks, gpu_.sizes.step));
    }
    granted_.insert(claim.gpulet);
    return Grant{{{"CUDA_VISIBLE_DEVICES", gpu_.uuid},
                  {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                  {"CUDA_MPS_PIPE_DIRECTORY", gpu::kNoMpsDirectory},
                  {kDeviceVariable, "cuda:0"},
                  {kExpectedShareVariable, std::to_string(claim.share.percent)},
                  {kDeviceSmsVariable, std::to_string(gpu_.sizes.sms)}}};
  }

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
  return {StatusCode::invalid,
          fmt::format("a share of {} % of {} is below its smallest group of {} of {} SMs; make it "
                      "{:.0f} % or more",
                      share.percent, gpu.uuid, sizes.smallest, sizes.sms, least)};
}

std::unique_ptr<PartitionDriver> make_green_driver(const GreenGpu& gpu) {
  return std::make_unique<GreenDriver>(gpu);
}

}  // namespace gpulet::partition
