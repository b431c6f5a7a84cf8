#include "gpulet/partition/drivers/mps.h"

#include <map>
#include <set>
#include <utility>

#include "partition/drivers/mps_keeper.h"

namespace gpulet::partition {
namespace {

class MpsDriver final : public PartitionDriver {
 public:
  MpsDriver(MpsGpu gpu, MpsDaemon daemon, const MpsOptions& options)
      : gpu_(std::move(gpu)), keeper_(std::move(daemon), options, gpu_.uuid) {}

  [[nodiscard]] std::string mechanism() const override { return "mps"; }
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = 1,
            .change = ChangeOfSize::new_process,
            .fault = FaultReach::device,
            .limits_memory = true};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (granted_.contains(claim.gpulet)) {
      return Status(StatusCode::internal, name_of(claim.gpulet) + " has a share already");
    }
    if (granted_.size() >= gpu_.max_clients) {
      return Status(StatusCode::unavailable, "MPS lets " + std::to_string(gpu_.max_clients) +
                                                 " processes share " + gpu_.uuid +
                                                 ", and as many do; plan fewer gpulets for it");
    }
    if (auto ready = keeper_.ready(); !ready.ok()) return ready;
    granted_.insert(claim.gpulet);
    return Grant{environment_of(claim.share, claim.memory_bytes)};
  }

  [[nodiscard]] bool ready() const override { return keeper_.ready().ok(); }
  // The process itself has the share from its first use of CUDA on, and tells what it found.
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  [[nodiscard]] bool end(GpuletId /*gpulet*/, pid_t process) override {
    return keeper_.end(process);
  }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  [[nodiscard]] std::map<std::string, std::string> environment_of(
      Share share, std::uint64_t memory_bytes) const {
    auto variables = keeper_.environment();
    variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(share.percent);
    variables[kExpectedShareVariable] = std::to_string(share.percent);
    variables[kDeviceVariable] = "cuda:0";  // the only one that the daemon shows its clients
    if (gpu_.sms > 0) variables[kDeviceSmsVariable] = std::to_string(gpu_.sms);
    const auto part = gpu_.memory_bytes * static_cast<std::uint64_t>(share.percent) / 100;
    const auto limit = mps_memory_limit(memory_bytes, gpu_.memory_bytes, part);
    if (limit > 0) variables[kMpsMemoryVariable] = mps_memory_text(limit);
    return variables;
  }

  const MpsGpu gpu_;
  std::set<GpuletId> granted_;
  MpsKeeper keeper_;
};

}  // namespace

Result<std::unique_ptr<PartitionDriver>> make_mps_driver(const MpsGpu& gpu,
                                                         const MpsOptions& options) {
  auto daemon = MpsDaemon::start(options, gpu.uuid);
  if (!daemon.ok()) return daemon.status();
  return std::unique_ptr<PartitionDriver>(
      std::make_unique<MpsDriver>(gpu, std::move(daemon).value(), options));
}

}  // namespace gpulet::partition
