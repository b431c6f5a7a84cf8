#include "gpulet/partition/drivers/mig.h"

#include <algorithm>
#include <utility>

#include "gpulet/core/megabytes.h"
#include "gpulet/gpu/cuda_driver.h"
#include "partition/drivers/mig_keeper.h"

namespace gpulet::partition {
namespace {

// Of the memory that the geometry gives an instance, this much at least it must have: drivers keep
// some back, and a GPU of another size has half or twice as much.
constexpr double kLeastMemory = 0.9;

std::string starts_in_words(const std::vector<std::uint32_t>& starts) {
  std::string words;
  for (const std::uint32_t start : starts)
    words += (words.empty() ? "" : ", ") + std::to_string(start);
  return words;
}

class MigDriver final : public PartitionDriver {
 public:
  MigDriver(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there, std::uint32_t sms,
            const MigGpu& gpu, const MpsOptions& mps)
      : gpu_(gpu), sms_(sms), keeper_(std::move(device), std::move(there), gpu, mps) {}

  [[nodiscard]] std::string mechanism() const override { return "mig"; }
  // Processes of one instance that share it by MPS have its faults in common; each tells its own.
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = 100.0 / gpu_.geometry.compute_slices(),
            .change = ChangeOfSize::new_process,
            .fault = FaultReach::process,
            .limits_memory = true};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (Status possible = check(claim); !possible.ok()) return possible;
    const auto held = keeper_.hold(claim.gpulet, *claim.instance);
    if (!held.ok()) return held.status();
    return Grant{environment_of(claim, held.value())};
  }

  [[nodiscard]] bool ready() const override { return keeper_.ready(); }
  // The process has its instance from its first use of CUDA on, and tells what it found.
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  [[nodiscard]] bool end(GpuletId gpulet, pid_t process) override {
    return keeper_.end(gpulet, process);
  }
  void release(GpuletId gpulet) override { keeper_.let_go(gpulet); }

 private:
  [[nodiscard]] Status check(const Claim& claim) const {
    if (!claim.instance) {
      return {StatusCode::invalid, gpu_.uuid + " is divided by MIG, and gpulet " +
                                       std::to_string(claim.gpulet.value) +
                                       " does not say which instance it is to have"};
    }
    if (!gpu_.geometry.exists(*claim.instance)) {
      return {StatusCode::invalid, gpu_.uuid + " (" + std::string(gpu_.geometry.name()) +
                                       ") has no instance " + to_string(*claim.instance)};
    }
    const Share share = gpu_.geometry.share_of(claim.instance->slices);
    if (claim.share == share) return {};
    return {StatusCode::invalid, "an instance " + to_string(*claim.instance) + " is a share of " +
                                     std::to_string(share.percent) + " %; was " +
                                     std::to_string(claim.share.percent)};
  }

  [[nodiscard]] std::map<std::string, std::string> environment_of(
      const Claim& claim, const MigKeeper::Held& held) const {
    std::map<std::string, std::string> variables{
        {"CUDA_VISIBLE_DEVICES", held.instance.uuid},
        {kDeviceVariable, "cuda:0"},
        {kExpectedShareVariable, std::to_string(claim.share.percent)},
        {kDeviceSmsVariable, std::to_string(sms_)}};
    if (held.daemon.empty()) {
      variables["CUDA_MPS_PIPE_DIRECTORY"] = gpu::kNoMpsDirectory;
      return variables;
    }
    variables.insert(held.daemon.begin(), held.daemon.end());
    variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "100";
    const std::uint64_t memory = held.instance.memory_bytes;
    variables[kMpsMemoryVariable] = mps_memory_text(
        mps_memory_limit(claim.memory_bytes, memory, memory / gpu_.processes_per_instance));
    return variables;
  }

  const MigGpu gpu_;
  const std::uint32_t sms_;  // of all instances that there could be at most
  MigKeeper keeper_;
};

}  // namespace

Status check_mig_geometry(const MigGeometry& geometry,
                          const std::vector<gpu::MigProfileInfo>& profiles) {
  const std::string mend = "; name the GPU's own geometry, or add it to gpulet";
  for (const MigProfile& expected : geometry.profiles()) {
    const std::string name = mig_profile_name(expected.slices);
    const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const auto& profile) {
      return profile.slices == expected.slices;
    });
    const std::string by_geometry = " in the geometry " + std::string(geometry.name());
    if (found == profiles.end())
      return {StatusCode::invalid,
              "the GPU has no " + name + ", and there is one" + by_geometry + mend};
    const std::vector<std::uint32_t> starts(expected.starts().begin(), expected.starts().end());
    if (found->starts != starts || found->memory_slices != expected.memory_slices) {
      return {StatusCode::invalid, "the GPU has " + name + " at " + starts_in_words(found->starts) +
                                       " over " + std::to_string(found->memory_slices) +
                                       " memory slices, and at " + starts_in_words(starts) +
                                       " over " + std::to_string(expected.memory_slices) +
                                       by_geometry + mend};
    }
    const double has_mb = static_cast<double>(found->memory_bytes) / kBytesPerMegabyte;
    if (has_mb < kLeastMemory * expected.memory_mb) {
      return {StatusCode::invalid, "a " + name + " of the GPU has " +
                                       std::to_string(static_cast<long>(has_mb)) + " MB, and " +
                                       std::to_string(static_cast<long>(expected.memory_mb)) +
                                       by_geometry + mend};
    }
  }
  return {};
}

Result<std::unique_ptr<PartitionDriver>> make_mig_driver(const MigGpu& gpu,
                                                         const std::filesystem::path& nvml,
                                                         const MpsOptions& mps) {
  auto device = gpu::MigDevice::open(gpu.uuid, nvml);
  if (!device.ok()) return device.status();
  const auto profiles = device.value().profiles();
  if (Status alike = check_mig_geometry(gpu.geometry, profiles); !alike.ok())
    return alike.within(gpu.uuid);
  if (gpu.processes_per_instance > 1) {
    const auto control = find_mps_control(mps.control);
    if (!control.ok()) return control.status().within("several processes on one instance take MPS");
  }
  auto there = device.value().instances();
  if (!there.ok()) return there.status();
  return std::unique_ptr<PartitionDriver>(std::make_unique<MigDriver>(
      std::move(device).value(), std::move(there).value(), profiles.back().sms, gpu, mps));
}

}  // namespace gpulet::partition
