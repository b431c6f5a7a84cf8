#include "gpulet/gpu/nvml.h"

#include <algorithm>
#include <array>
#include <map>

#include "gpu/nvml_calls.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/text.h"

namespace gpulet::gpu {
namespace {

namespace abi = nvml_abi;

constexpr std::size_t kLongestText = 96;  // the buffer size for a version in nvml.h

// Values that the GPU does not support keep their defaults.
Status read(const NvmlCalls& calls, GpuInfo& gpu) {
  abi::Device device = nullptr;
  abi::Return code = calls.device_by_index(gpu.number, &device);
  const std::string failed = "cannot access GPU " + std::to_string(gpu.number);
  if (code != abi::kSuccess) return calls.failure(code, failed);
  Result<std::string> uuid = calls.text(calls.device_uuid, device);
  if (!uuid.ok()) return uuid.status().within("GPU " + std::to_string(gpu.number));
  gpu.uuid = std::move(uuid).value();
  Result<std::string> name = calls.text(calls.device_name, device);
  if (!name.ok()) return name.status().within("GPU " + std::to_string(gpu.number));
  gpu.name = std::move(name).value();

  const auto answered = [&code](abi::Return answer) {
    if (answer != abi::kSuccess && answer != abi::kNotSupported && code == abi::kSuccess)
      code = answer;
    return answer == abi::kSuccess;
  };
  if (abi::Memory memory{}; answered(calls.device_memory(device, &memory)))
    gpu.memory_bytes = memory.total;
  int major = 0;
  int minor = 0;
  if (answered(calls.device_capability(device, &major, &minor))) {
    gpu.compute_major = static_cast<std::uint32_t>(major);
    gpu.compute_minor = static_cast<std::uint32_t>(minor);
  }
  if (int mode = 0; answered(calls.device_compute_mode(device, &mode)))
    gpu.shareable = mode != abi::kComputeModeProhibited && mode != abi::kComputeModeExclusiveThread;
  abi::Count mig = 0;
  abi::Count mig_after_reset = 0;
  if (calls.device_mig_mode != nullptr &&
      answered(calls.device_mig_mode(device, &mig, &mig_after_reset)))
    gpu.mig_enabled = mig == abi::kMigEnabled;
  return code == abi::kSuccess ? Status() : calls.failure(code, failed);
}

}  // namespace

Result<Nvml> Nvml::load(const std::filesystem::path& library) {
  GPULET_TRY(std::shared_ptr<const NvmlCalls> calls, NvmlCalls::load(library));
  return Nvml(std::move(calls));
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, kLongestText> buffer{};
  const abi::Return code =
      calls_->driver_version(buffer.data(), static_cast<abi::Count>(buffer.size()));
  if (code != abi::kSuccess) return calls_->failure(code, "cannot read the driver's version");
  return std::string(buffer.data());
}

Result<std::vector<GpuInfo>> Nvml::gpus() const {
  abi::Count count = 0;
  if (const abi::Return code = calls_->device_count(&count); code != abi::kSuccess)
    return calls_->failure(code, "cannot list the GPUs");
  std::vector<GpuInfo> gpus(count);
  for (abi::Count number = 0; number < count; ++number) {
    gpus[number].number = number;
    gpus[number].fault = read(*calls_, gpus[number]).message();
  }
  return gpus;
}

Result<GpuMemory> Nvml::memory(const std::string& uuid) const {
  GPULET_TRY(const abi::Device device, calls_->device(uuid));
  abi::Memory memory{};
  if (const abi::Return code = calls_->device_memory(device, &memory); code != abi::kSuccess)
    return calls_->failure(code, "cannot read the memory of GPU " + uuid);
  return GpuMemory{memory.total, memory.free};
}

Result<GpuClocks> Nvml::clocks(const std::string& uuid) const {
  GPULET_TRY(const abi::Device device, calls_->device(uuid));
  GpuClocks clocks;
  for (const auto& [clock, mhz] : {std::pair{abi::kClockSm, &clocks.sm_mhz},
                                   std::pair{abi::kClockMemory, &clocks.memory_mhz}}) {
    if (const abi::Return code = calls_->device_clock(device, clock, mhz); code != abi::kSuccess)
      return calls_->failure(code, "cannot read the clocks of GPU " + uuid);
  }
  return clocks;
}

GpuPower Nvml::power(const std::string& uuid) const {
  constexpr double kMilli = 1e-3;
  GpuPower power;
  const Result<abi::Device> device = calls_->device(uuid);
  if (!device.ok()) return power;
  const auto read = [&device](auto* function, auto value) {
    std::optional<double> result;
    if (function != nullptr && function(device.value(), &value) == abi::kSuccess)
      result = static_cast<double>(value) * kMilli;
    return result;
  };
  power.usage_w = read(calls_->power_usage, 0U);
  power.limit_w = read(calls_->power_limit, 0U);
  power.energy_j = read(calls_->energy, 0ULL);
  return power;
}

namespace {

std::string listed(const std::vector<const GpuInfo*>& gpus) {
  std::vector<std::string> names;
  for (const GpuInfo* const gpu : gpus) {
    names.push_back(std::to_string(gpu->number) +
                    (gpu->uuid.empty() ? "" : " (" + gpu->uuid + ')'));
  }
  return joined(names);
}

bool is_number(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool matches(const GpuInfo& gpu, const std::string& selector) {
  if (!is_number(selector)) return gpu.uuid.starts_with(selector);
  return parse_number<std::uint32_t>(selector) == gpu.number;
}

}  // namespace

Result<GpuInfo> choose_gpu(const std::vector<GpuInfo>& gpus, const std::string& selector) {
  std::vector<const GpuInfo*> all;
  std::vector<const GpuInfo*> selected;
  for (const GpuInfo& gpu : gpus) {
    all.push_back(&gpu);
    if (selector.empty() ? selected.empty() && gpu.fault.empty() : matches(gpu, selector))
      selected.push_back(&gpu);
  }
  if (all.empty()) return Status(StatusCode::not_found, "this machine has no GPU");
  if (selected.empty()) {
    if (selector.empty()) return Status(StatusCode::unavailable, all.front()->fault);
    return Status(StatusCode::not_found,
                  "this machine has no GPU \"" + selector + "\"; it has " + listed(all));
  }
  if (selected.size() > 1) {
    return Status(StatusCode::invalid, "\"" + selector + "\" matches several GPUs: " +
                                           listed(selected) + "; use a longer prefix");
  }
  if (!selected.front()->fault.empty())
    return Status(StatusCode::unavailable, selected.front()->fault);
  return *selected.front();
}

// ---- MIG

namespace {

// NVML's numbers of the profiles without extra engines or memory.
constexpr abi::Count kPlainProfiles[] = {0, 1, 2, 3, 4, 5, 6};  // of 1, 2, 3, 4, 7, 8 and 6 slices
constexpr std::size_t kMostHandles = 64;                        // of GPU or compute instances
constexpr std::size_t kMostProcesses = 64;

struct Profile {
  MigProfileInfo info;
  abi::Count id = 0;
  bool plain = false;
};

// "3g@4"
std::string name_of(std::uint32_t slices, std::uint32_t start) {
  return std::to_string(slices) + "g@" + std::to_string(start);
}

std::string users_text(const std::vector<abi::Count>& processes) {
  if (processes.empty()) return "another client";
  std::vector<std::string> ids;
  for (const abi::Count process : processes) ids.push_back(std::to_string(process));
  return "process " + joined(ids);
}

}  // namespace

std::string to_string(const MigDeviceInstance& instance) {
  return name_of(instance.slices, instance.start);
}

class MigDevice::Impl {
 public:
  Impl(std::shared_ptr<const NvmlCalls> calls, std::string uuid)
      : calls_(std::move(calls)), uuid_(std::move(uuid)) {}

  [[nodiscard]] Status check_mode() const;
  [[nodiscard]] Status read_profiles();
  [[nodiscard]] std::vector<MigProfileInfo> profiles() const;
  [[nodiscard]] Result<std::vector<MigDeviceInstance>> instances() const;
  [[nodiscard]] Result<MigDeviceInstance> create(std::uint32_t slices, std::uint32_t start) const;
  [[nodiscard]] Status destroy(const MigDeviceInstance& instance) const;

 private:
  struct ComputeInstance {  // the one with all slices of a GPU instance
    abi::Count profile_id = 0;
    std::uint32_t sms = 0;
    bool exists = false;
  };

  [[nodiscard]] Result<Profile> read_profile(abi::Device device, const abi::GpuInstanceProfile& of,
                                             bool plain) const;
  [[nodiscard]] Result<std::vector<abi::GpuInstance>> handles_of(abi::Device device,
                                                                 const Profile& profile) const;
  [[nodiscard]] Result<MigDeviceInstance> describe(abi::GpuInstance handle, const Profile& profile,
                                                   abi::Device device) const;
  [[nodiscard]] std::optional<ComputeInstance> find_compute_instance(abi::GpuInstance handle,
                                                                     std::uint32_t slices) const;
  [[nodiscard]] Status create_compute_instance(abi::GpuInstance handle, std::uint32_t slices,
                                               const std::string& name) const;
  [[nodiscard]] Status destroy_compute_instances(abi::GpuInstance handle,
                                                 const MigDeviceInstance& instance) const;
  // nullptr where there is none.
  [[nodiscard]] abi::Device mig_device_of(abi::Device device, std::uint32_t instance) const;
  [[nodiscard]] std::vector<abi::Count> processes_on(std::uint32_t instance) const;
  [[nodiscard]] Status failure(abi::Return code, const std::string& what) const;
  [[nodiscard]] Status not_destroyed(abi::Return code, const MigDeviceInstance& instance) const;

  const std::shared_ptr<const NvmlCalls> calls_;
  const std::string uuid_;
  std::vector<Profile> profiles_;
};

Status MigDevice::Impl::failure(abi::Return code, const std::string& what) const {
  const std::string message = uuid_ + ": " + what + " (" + calls_->message(code) + ')';
  if (code == abi::kNoPermission) {
    return {StatusCode::unavailable, message + "; run the backend as root, or let its user read " +
                                         "/proc/driver/nvidia/capabilities/mig/config"};
  }
  if (code == abi::kInsufficientResources) {
    return {StatusCode::unavailable,
            message + "; its slices are taken: does another program divide this GPU as well?"};
  }
  return calls_->failure(code, uuid_ + ": " + what);
}

Status MigDevice::Impl::check_mode() const {
  if (Status able = calls_->can_divide(); !able.ok()) return able;
  GPULET_TRY(const abi::Device device, calls_->device(uuid_));
  abi::Count now = 0;
  abi::Count later = 0;
  const abi::Return code = calls_->device_mig_mode(device, &now, &later);
  if (code == abi::kNotSupported)
    return {StatusCode::unavailable, uuid_ + " does not support MIG; divide it by mps or green"};
  if (code != abi::kSuccess) return failure(code, "cannot read the MIG mode");
  if (now == abi::kMigEnabled) return {};
  if (later == abi::kMigEnabled) {
    return {StatusCode::unavailable,
            uuid_ + " is in MIG mode only after a reset; run nvidia-smi -r -i " + uuid_ +
                " as root while no program uses it, or restart the machine"};
  }
  return {StatusCode::unavailable, uuid_ + " is not in MIG mode; run nvidia-smi -i " + uuid_ +
                                       " -mig 1 as root while no program uses it"};
}

Status MigDevice::Impl::read_profiles() {
  GPULET_TRY(const abi::Device device, calls_->device(uuid_));
  for (abi::Count number = 0; number < abi::kGpuInstanceProfiles; ++number) {
    abi::GpuInstanceProfile info{};
    const abi::Return code = calls_->instance_profile(device, number, &info);
    if (code == abi::kNotSupported || code == abi::kInvalidArgument) continue;
    if (code != abi::kSuccess) return failure(code, "cannot read the MIG profiles");
    const bool plain = std::find(std::begin(kPlainProfiles), std::end(kPlainProfiles), number) !=
                       std::end(kPlainProfiles);
    GPULET_TRY(Profile profile, read_profile(device, info, plain));
    profiles_.push_back(std::move(profile));
  }
  return {};
}

Result<Profile> MigDevice::Impl::read_profile(abi::Device device, const abi::GpuInstanceProfile& of,
                                              bool plain) const {
  std::array<abi::Placement, kMostHandles> placements{};
  auto count = static_cast<abi::Count>(placements.size());
  const abi::Return code = calls_->possible_placements(device, of.id, placements.data(), &count);
  if (code != abi::kSuccess) return failure(code, "cannot read the MIG placements");
  Profile profile{
      {of.slices, 0, of.multiprocessors, of.memory_mb * kBytesPerMegabyte}, of.id, plain};
  for (abi::Count at = 0; at < count; ++at) {
    profile.info.memory_slices = placements[at].size;
    profile.info.starts.push_back(placements[at].start);
  }
  std::sort(profile.info.starts.begin(), profile.info.starts.end());
  return profile;
}

std::vector<MigProfileInfo> MigDevice::Impl::profiles() const {
  std::vector<MigProfileInfo> plain;
  for (const Profile& profile : profiles_) {
    if (profile.plain) plain.push_back(profile.info);
  }
  std::sort(plain.begin(), plain.end(),
            [](const auto& one, const auto& other) { return one.slices < other.slices; });
  return plain;
}

Result<std::vector<abi::GpuInstance>> MigDevice::Impl::handles_of(abi::Device device,
                                                                  const Profile& profile) const {
  std::array<abi::GpuInstance, kMostHandles> handles{};
  abi::Count count = 0;
  const abi::Return code = calls_->instances_of_profile(device, profile.id, handles.data(), &count);
  if (code == abi::kNotSupported) return std::vector<abi::GpuInstance>();
  if (code != abi::kSuccess) return failure(code, "cannot list the MIG instances");
  return std::vector<abi::GpuInstance>(handles.begin(), handles.begin() + count);
}

Result<std::vector<MigDeviceInstance>> MigDevice::Impl::instances() const {
  GPULET_TRY(const abi::Device device, calls_->device(uuid_));
  std::map<std::uint32_t, MigDeviceInstance> by_start;
  for (const Profile& profile : profiles_) {
    GPULET_TRY(const auto handles, handles_of(device, profile));
    for (const abi::GpuInstance handle : handles) {
      GPULET_TRY(MigDeviceInstance one, describe(handle, profile, device));
      by_start.insert_or_assign(one.start, std::move(one));
    }
  }
  std::vector<MigDeviceInstance> all;
  for (auto& [start, instance] : by_start) all.push_back(std::move(instance));
  return all;
}

Result<MigDeviceInstance> MigDevice::Impl::describe(abi::GpuInstance handle, const Profile& profile,
                                                    abi::Device device) const {
  abi::GpuInstanceInfo info{};
  if (const abi::Return code = calls_->instance_info(handle, &info); code != abi::kSuccess)
    return failure(code, "cannot read the placement of an instance");
  MigDeviceInstance instance{.id = info.id,
                             .slices = profile.info.slices,
                             .start = info.placement.start,
                             .memory_slices = info.placement.size,
                             .sms = profile.info.sms,
                             .memory_bytes = profile.info.memory_bytes};
  const std::optional<ComputeInstance> part = find_compute_instance(handle, profile.info.slices);
  if (!part || !part->exists) return instance;
  instance.sms = part->sms;
  const abi::Device mig_device = mig_device_of(device, info.id);
  if (mig_device == nullptr) return instance;
  Result<std::string> uuid = calls_->text(calls_->device_uuid, mig_device);
  if (!uuid.ok()) return uuid.status().within(uuid_ + ", " + to_string(instance));
  instance.uuid = std::move(uuid).value();
  return instance;
}

std::optional<MigDevice::Impl::ComputeInstance> MigDevice::Impl::find_compute_instance(
    abi::GpuInstance handle, std::uint32_t slices) const {
  for (abi::Count number = 0; number < abi::kComputeInstanceProfiles; ++number) {
    abi::ComputeInstanceProfile info{};
    const bool known =
        calls_->part_profile(handle, number, abi::kSharedEngines, &info) == abi::kSuccess;
    if (!known || info.slices != slices) continue;
    std::array<abi::ComputeInstance, kMostHandles> parts{};
    abi::Count count = 0;
    const abi::Return code = calls_->parts_of_profile(handle, info.id, parts.data(), &count);
    return ComputeInstance{info.id, info.multiprocessors, code == abi::kSuccess && count == 1};
  }
  return std::nullopt;
}

abi::Device MigDevice::Impl::mig_device_of(abi::Device device, std::uint32_t instance) const {
  abi::Count count = 0;
  if (calls_->mig_device_count(device, &count) != abi::kSuccess) return nullptr;
  for (abi::Count number = 0; number < count; ++number) {
    abi::Device mig_device = nullptr;
    abi::Count id = 0;
    const bool found = calls_->mig_device_by_index(device, number, &mig_device) == abi::kSuccess &&
                       calls_->mig_device_instance(mig_device, &id) == abi::kSuccess &&
                       id == instance;
    if (found) return mig_device;
  }
  return nullptr;
}

Result<MigDeviceInstance> MigDevice::Impl::create(std::uint32_t slices, std::uint32_t start) const {
  const std::string name = name_of(slices, start);
  const auto profile = std::find_if(
      profiles_.begin(), profiles_.end(),
      [&](const Profile& candidate) { return candidate.plain && candidate.info.slices == slices; });
  const bool exists = profile != profiles_.end() &&
                      std::find(profile->info.starts.begin(), profile->info.starts.end(), start) !=
                          profile->info.starts.end();
  if (!exists) return Status(StatusCode::invalid, uuid_ + " has no instance " + name);
  GPULET_TRY(const abi::Device device, calls_->device(uuid_));
  const abi::Placement placement{start, profile->info.memory_slices};
  abi::GpuInstance handle = nullptr;
  if (const abi::Return code = calls_->create_instance(device, profile->id, &placement, &handle);
      code != abi::kSuccess)
    return failure(code, "cannot create " + name);
  Result<MigDeviceInstance> made =
      Status(StatusCode::internal, uuid_ + ": " + name + " was created but has no UUID");
  if (Status whole = create_compute_instance(handle, slices, name); !whole.ok()) {
    made = whole;
  } else if (auto described = describe(handle, *profile, device);
             !described.ok() || !described.value().uuid.empty()) {
    made = std::move(described);
  }
  if (!made.ok()) {
    const MigDeviceInstance left{.slices = slices, .start = start};
    (void)destroy_compute_instances(handle, left);
    (void)calls_->destroy_instance(handle);
  }
  return made;
}

Status MigDevice::Impl::create_compute_instance(abi::GpuInstance handle, std::uint32_t slices,
                                                const std::string& name) const {
  const std::optional<ComputeInstance> part = find_compute_instance(handle, slices);
  if (!part) {
    return {StatusCode::internal,
            uuid_ + ": " + name + " has no compute profile of all its slices"};
  }
  abi::ComputeInstance made = nullptr;
  const abi::Return code = calls_->create_part(handle, part->profile_id, &made);
  return code == abi::kSuccess ? Status()
                               : failure(code, "cannot create the compute instance of " + name);
}

Status MigDevice::Impl::destroy(const MigDeviceInstance& instance) const {
  GPULET_TRY(const abi::Device device, calls_->device(uuid_));
  abi::GpuInstance handle = nullptr;
  const abi::Return found = calls_->instance_by_id(device, instance.id, &handle);
  if (found == abi::kNotFound) return {};
  if (found != abi::kSuccess) return failure(found, "cannot find " + to_string(instance));
  // NVML reuses ids: check that it is still the same instance.
  abi::GpuInstanceInfo info{};
  const bool same =
      calls_->instance_info(handle, &info) != abi::kSuccess ||
      (info.placement.start == instance.start && info.placement.size == instance.memory_slices);
  if (!same) return {};
  if (Status empty = destroy_compute_instances(handle, instance); !empty.ok()) return empty;
  const abi::Return code = calls_->destroy_instance(handle);
  return code == abi::kSuccess ? Status() : not_destroyed(code, instance);
}

Status MigDevice::Impl::destroy_compute_instances(abi::GpuInstance handle,
                                                  const MigDeviceInstance& instance) const {
  for (abi::Count number = 0; number < abi::kComputeInstanceProfiles; ++number) {
    abi::ComputeInstanceProfile info{};
    if (calls_->part_profile(handle, number, abi::kSharedEngines, &info) != abi::kSuccess) continue;
    std::array<abi::ComputeInstance, kMostHandles> parts{};
    abi::Count count = 0;
    if (calls_->parts_of_profile(handle, info.id, parts.data(), &count) != abi::kSuccess) continue;
    for (abi::Count at = 0; at < count; ++at) {
      if (const abi::Return code = calls_->destroy_part(parts[at]); code != abi::kSuccess)
        return not_destroyed(code, instance);
    }
  }
  return {};
}

Status MigDevice::Impl::not_destroyed(abi::Return code, const MigDeviceInstance& instance) const {
  if (code != abi::kInUse) return failure(code, "cannot destroy " + to_string(instance));
  return {StatusCode::unavailable,
          uuid_ + ": " + to_string(instance) + " is in use by " +
              users_text(processes_on(instance.id)) +
              "; stop these programs, and monitoring (DCGM) as well; the driver retries"};
}

std::vector<abi::Count> MigDevice::Impl::processes_on(std::uint32_t instance) const {
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok() || calls_->running_processes == nullptr) return {};
  const abi::Device mig_device = mig_device_of(device.value(), instance);
  std::array<abi::RunningProcess, kMostProcesses> running{};
  auto count = static_cast<abi::Count>(running.size());
  if (mig_device == nullptr ||
      calls_->running_processes(mig_device, &count, running.data()) != abi::kSuccess)
    return {};
  std::vector<abi::Count> processes;
  for (abi::Count at = 0; at < count; ++at) processes.push_back(running[at].process);
  return processes;
}

Result<MigDevice> MigDevice::open(const std::string& gpu_uuid,
                                  const std::filesystem::path& library) {
  GPULET_TRY(std::shared_ptr<const NvmlCalls> calls, NvmlCalls::load(library));
  const auto impl = std::make_shared<Impl>(std::move(calls), gpu_uuid);
  if (Status on = impl->check_mode(); !on.ok()) return on;
  if (Status read = impl->read_profiles(); !read.ok()) return read;
  return MigDevice(impl);
}

std::vector<MigProfileInfo> MigDevice::profiles() const { return impl_->profiles(); }
Result<std::vector<MigDeviceInstance>> MigDevice::instances() const { return impl_->instances(); }
Result<MigDeviceInstance> MigDevice::create(std::uint32_t slices, std::uint32_t start) const {
  return impl_->create(slices, start);
}
Status MigDevice::destroy(const MigDeviceInstance& instance) const {
  return impl_->destroy(instance);
}

}  // namespace gpulet::gpu
