#include "gpulet/gpu/mig_device.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "gpu/nvml_calls.h"
#include "gpulet/core/megabytes.h"

namespace gpulet::gpu {
namespace {

namespace abi = nvml_abi;

// NVML's numbers of the profiles that have slices alone, and no extra engines or memory.
constexpr abi::Count kPlainProfiles[] = {0, 1, 2, 3, 4, 5, 6};  // of 1, 2, 3, 4, 7, 8 and 6 slices
constexpr std::size_t kMostHandles = 64;                        // of instances, or their parts
constexpr std::size_t kMostProcesses = 64;

struct Profile {
  MigProfileInfo info;
  abi::Count id = 0;
  bool plain = false;
};

std::string name_of(std::uint32_t slices, std::uint32_t start) {
  return std::to_string(slices) + "g@" + std::to_string(start);
}

std::string in_words(const std::vector<abi::Count>& processes) {
  std::string words;
  for (const abi::Count process : processes)
    words += (words.empty() ? "process " : ", ") + std::to_string(process);
  return words.empty() ? "another client" : words;
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
  struct Part {  // the compute instance of all of a GPU instance
    abi::Count profile_id = 0;
    std::uint32_t sms = 0;
    bool there = false;
  };

  [[nodiscard]] Result<Profile> read_profile(abi::Device device, const abi::GpuInstanceProfile& of,
                                             bool plain) const;
  [[nodiscard]] Result<std::vector<abi::GpuInstance>> handles_of(abi::Device device,
                                                                 const Profile& profile) const;
  [[nodiscard]] Result<MigDeviceInstance> describe(abi::GpuInstance handle, const Profile& profile,
                                                   abi::Device device) const;
  [[nodiscard]] std::optional<Part> whole_part(abi::GpuInstance handle, std::uint32_t slices) const;
  [[nodiscard]] Status make_whole(abi::GpuInstance handle, std::uint32_t slices,
                                  const std::string& name) const;
  [[nodiscard]] Status destroy_parts(abi::GpuInstance handle,
                                     const MigDeviceInstance& instance) const;
  // nullptr: there is none.
  [[nodiscard]] abi::Device mig_device_of(abi::Device device, std::uint32_t instance) const;
  [[nodiscard]] std::vector<abi::Count> processes_on(std::uint32_t instance) const;
  [[nodiscard]] Status failure(abi::Return code, const std::string& what) const;
  [[nodiscard]] Status not_destroyed(abi::Return code, const MigDeviceInstance& instance) const;

  const std::shared_ptr<const NvmlCalls> calls_;
  const std::string uuid_;
  std::vector<Profile> profiles_;
};

Status MigDevice::Impl::failure(abi::Return code, const std::string& what) const {
  const std::string message = uuid_ + ": " + what + " (" + calls_->words(code) + ')';
  if (code == abi::kNoPermission) {
    return {StatusCode::unavailable, message + "; run the backend as root, or let its user read " +
                                         "/proc/driver/nvidia/capabilities/mig/config"};
  }
  if (code == abi::kInsufficientResources) {
    return {StatusCode::unavailable,
            message + "; its place is taken: does somebody else divide this GPU as well?"};
  }
  return calls_->failure(code, uuid_ + ": " + what);
}

Status MigDevice::Impl::check_mode() const {
  if (Status able = calls_->can_divide(); !able.ok()) return able;
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok()) return device.status();
  abi::Count now = 0;
  abi::Count later = 0;
  const abi::Return code = calls_->device_mig_mode(device.value(), &now, &later);
  if (code == abi::kNotSupported)
    return {StatusCode::unavailable, uuid_ + " knows no MIG; divide it by mps or green"};
  if (code != abi::kSuccess) return failure(code, "it does not tell whether MIG is on");
  if (now == abi::kMigEnabled) return {};
  if (later == abi::kMigEnabled) {
    return {StatusCode::unavailable,
            uuid_ + " will be in MIG mode after a reset; run nvidia-smi -r -i " + uuid_ +
                " as root, while nothing uses it, or restart the machine"};
  }
  return {StatusCode::unavailable, uuid_ + " is not in MIG mode; run nvidia-smi -i " + uuid_ +
                                       " -mig 1 as root, while nothing uses it"};
}

Status MigDevice::Impl::read_profiles() {
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok()) return device.status();
  for (abi::Count number = 0; number < abi::kGpuInstanceProfiles; ++number) {
    abi::GpuInstanceProfile info{};
    const abi::Return code = calls_->instance_profile(device.value(), number, &info);
    if (code == abi::kNotSupported || code == abi::kInvalidArgument) continue;
    if (code != abi::kSuccess) return failure(code, "it does not tell its profiles");
    const bool plain = std::find(std::begin(kPlainProfiles), std::end(kPlainProfiles), number) !=
                       std::end(kPlainProfiles);
    Result<Profile> profile = read_profile(device.value(), info, plain);
    if (!profile.ok()) return profile.status();
    profiles_.push_back(std::move(profile).value());
  }
  return {};
}

Result<Profile> MigDevice::Impl::read_profile(abi::Device device, const abi::GpuInstanceProfile& of,
                                              bool plain) const {
  std::array<abi::Placement, kMostHandles> placements{};
  auto count = static_cast<abi::Count>(placements.size());
  const abi::Return code = calls_->possible_placements(device, of.id, placements.data(), &count);
  if (code != abi::kSuccess) return failure(code, "it does not tell where its instances may be");
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

// ---- what is there

Result<std::vector<abi::GpuInstance>> MigDevice::Impl::handles_of(abi::Device device,
                                                                  const Profile& profile) const {
  std::array<abi::GpuInstance, kMostHandles> handles{};
  abi::Count count = 0;
  const abi::Return code = calls_->instances_of_profile(device, profile.id, handles.data(), &count);
  if (code == abi::kNotSupported) return std::vector<abi::GpuInstance>();
  if (code != abi::kSuccess) return failure(code, "it does not tell its instances");
  return std::vector<abi::GpuInstance>(handles.begin(), handles.begin() + count);
}

Result<std::vector<MigDeviceInstance>> MigDevice::Impl::instances() const {
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok()) return device.status();
  std::map<std::uint32_t, MigDeviceInstance> by_start;
  for (const Profile& profile : profiles_) {
    const auto handles = handles_of(device.value(), profile);
    if (!handles.ok()) return handles.status();
    for (const abi::GpuInstance handle : handles.value()) {
      Result<MigDeviceInstance> one = describe(handle, profile, device.value());
      if (!one.ok()) return one.status();
      by_start.insert_or_assign(one.value().start, std::move(one).value());
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
    return failure(code, "an instance does not tell where it is");
  MigDeviceInstance instance{.id = info.id,
                             .slices = profile.info.slices,
                             .start = info.placement.start,
                             .memory_slices = info.placement.size,
                             .sms = profile.info.sms,
                             .memory_bytes = profile.info.memory_bytes};
  const std::optional<Part> part = whole_part(handle, profile.info.slices);
  if (!part || !part->there) return instance;
  instance.sms = part->sms;
  const abi::Device mig_device = mig_device_of(device, info.id);
  if (mig_device == nullptr) return instance;
  Result<std::string> uuid = calls_->text(calls_->device_uuid, mig_device);
  if (!uuid.ok()) return uuid.status().within(uuid_ + ", " + to_string(instance));
  instance.uuid = std::move(uuid).value();
  return instance;
}

std::optional<MigDevice::Impl::Part> MigDevice::Impl::whole_part(abi::GpuInstance handle,
                                                                 std::uint32_t slices) const {
  for (abi::Count number = 0; number < abi::kComputeInstanceProfiles; ++number) {
    abi::ComputeInstanceProfile info{};
    const bool known =
        calls_->part_profile(handle, number, abi::kSharedEngines, &info) == abi::kSuccess;
    if (!known || info.slices != slices) continue;
    std::array<abi::ComputeInstance, kMostHandles> parts{};
    abi::Count count = 0;
    const abi::Return code = calls_->parts_of_profile(handle, info.id, parts.data(), &count);
    return Part{info.id, info.multiprocessors, code == abi::kSuccess && count == 1};
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

// ---- changes

Result<MigDeviceInstance> MigDevice::Impl::create(std::uint32_t slices, std::uint32_t start) const {
  const std::string name = name_of(slices, start);
  const auto profile = std::find_if(
      profiles_.begin(), profiles_.end(),
      [&](const Profile& candidate) { return candidate.plain && candidate.info.slices == slices; });
  const bool exists = profile != profiles_.end() &&
                      std::find(profile->info.starts.begin(), profile->info.starts.end(), start) !=
                          profile->info.starts.end();
  if (!exists) return Status(StatusCode::invalid, uuid_ + " has no instance " + name);
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok()) return device.status();
  const abi::Placement placement{start, profile->info.memory_slices};
  abi::GpuInstance handle = nullptr;
  if (const abi::Return code =
          calls_->create_instance(device.value(), profile->id, &placement, &handle);
      code != abi::kSuccess)
    return failure(code, name + " cannot be made");
  Result<MigDeviceInstance> made =
      Status(StatusCode::internal, uuid_ + ": " + name + " was made and has no UUID");
  if (Status whole = make_whole(handle, slices, name); !whole.ok()) {
    made = whole;
  } else if (auto described = describe(handle, *profile, device.value());
             !described.ok() || !described.value().uuid.empty()) {
    made = std::move(described);
  }
  if (!made.ok()) {
    const MigDeviceInstance left{.slices = slices, .start = start};
    (void)destroy_parts(handle, left);
    (void)calls_->destroy_instance(handle);
  }
  return made;
}

Status MigDevice::Impl::make_whole(abi::GpuInstance handle, std::uint32_t slices,
                                   const std::string& name) const {
  const std::optional<Part> part = whole_part(handle, slices);
  if (!part) {
    return {StatusCode::internal,
            uuid_ + ": " + name + " has no compute profile of all its slices"};
  }
  abi::ComputeInstance made = nullptr;
  const abi::Return code = calls_->create_part(handle, part->profile_id, &made);
  return code == abi::kSuccess
             ? Status()
             : failure(code, "the compute instance of " + name + " cannot be made");
}

Status MigDevice::Impl::destroy(const MigDeviceInstance& instance) const {
  const Result<abi::Device> device = calls_->device(uuid_);
  if (!device.ok()) return device.status();
  abi::GpuInstance handle = nullptr;
  const abi::Return found = calls_->instance_by_id(device.value(), instance.id, &handle);
  if (found == abi::kNotFound) return {};
  if (found != abi::kSuccess) return failure(found, to_string(instance) + " cannot be found");
  // Ids are given again: another instance may have this one by now.
  abi::GpuInstanceInfo info{};
  const bool same =
      calls_->instance_info(handle, &info) != abi::kSuccess ||
      (info.placement.start == instance.start && info.placement.size == instance.memory_slices);
  if (!same) return {};
  if (Status empty = destroy_parts(handle, instance); !empty.ok()) return empty;
  const abi::Return code = calls_->destroy_instance(handle);
  return code == abi::kSuccess ? Status() : not_destroyed(code, instance);
}

Status MigDevice::Impl::destroy_parts(abi::GpuInstance handle,
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
  if (code != abi::kInUse) return failure(code, to_string(instance) + " cannot be destroyed");
  return {StatusCode::unavailable,
          uuid_ + ": " + to_string(instance) + " is in use by " +
              in_words(processes_on(instance.id)) +
              "; end what runs on it, monitoring (DCGM) as well; it is tried again"};
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

// ---- the class itself

Result<MigDevice> MigDevice::open(const std::string& gpu_uuid,
                                  const std::filesystem::path& library) {
  Result<std::shared_ptr<const NvmlCalls>> calls = NvmlCalls::load(library);
  if (!calls.ok()) return calls.status();
  auto impl = std::make_unique<Impl>(std::move(calls).value(), gpu_uuid);
  if (Status on = impl->check_mode(); !on.ok()) return on;
  if (Status read = impl->read_profiles(); !read.ok()) return read;
  return MigDevice(std::move(impl));
}

std::vector<MigProfileInfo> MigDevice::profiles() const { return impl_->profiles(); }
Result<std::vector<MigDeviceInstance>> MigDevice::instances() const { return impl_->instances(); }
Result<MigDeviceInstance> MigDevice::create(std::uint32_t slices, std::uint32_t start) const {
  return impl_->create(slices, start);
}
Status MigDevice::destroy(const MigDeviceInstance& instance) const {
  return impl_->destroy(instance);
}

MigDevice::MigDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MigDevice::MigDevice(MigDevice&&) noexcept = default;
MigDevice& MigDevice::operator=(MigDevice&&) noexcept = default;
MigDevice::~MigDevice() = default;

}  // namespace gpulet::gpu
