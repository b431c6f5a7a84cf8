// The MIG part of the fake NVML (fake_gpus.h has its settings). It checks placements independently
// of the code under test, by bit masks of memory slices.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <sstream>

#include "tests/support/gpu/fake_mig.h"
#include "tests/support/gpu/fake_nvml_devices.h"

namespace {

namespace abi = gpulet::gpu::nvml_abi;
using gpulet::support::copy_text;
using gpulet::support::fake_mig_profiles;
using gpulet::support::FakeMig;
using gpulet::support::FakeMigInstance;
using gpulet::support::FakeMigProfile;
using gpulet::support::FakeSettings;
using gpulet::support::kFakeMigDevice;
using gpulet::support::number_of_device;
using gpulet::support::of_device;
using gpulet::support::read_fake_machine;
using gpulet::support::record_fake_call;

std::mutex& file_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::vector<FakeMigProfile> profiles_of(const FakeSettings& gpu) {
  return fake_mig_profiles(gpu.number("mig_slices", 7) == 4);
}
const FakeMigProfile* by_number(const std::vector<FakeMigProfile>& all, std::uint32_t number) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& profile) { return profile.number == number; });
  return found == all.end() ? nullptr : &*found;
}
const FakeMigProfile* by_id(const std::vector<FakeMigProfile>& all, std::uint32_t id) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& profile) { return profile.id == id; });
  return found == all.end() ? nullptr : &*found;
}
std::uint32_t bits_of(const FakeMigProfile& profile, std::uint32_t start) {
  return ((1U << profile.size) - 1U) << start;
}

// The configured error, or kSuccess.
abi::Return told_for(const char* function) {
  return static_cast<abi::Return>(
      read_fake_machine().settings.number(std::string("fail_") + function, abi::kSuccess));
}

bool is_in_use(const FakeSettings& gpu, std::uint32_t start) {
  std::istringstream starts(gpu.text("mig_in_use", ""));
  for (std::uint32_t one = 0; starts >> one;) {
    if (one == start) return true;
  }
  return false;
}

// Calls `answer` with a GPU in MIG mode, if the process has permission.
template <typename Answer>
abi::Return of_divided(const char* function, abi::Device device, bool privileged, Answer answer) {
  return of_device(device, [&](const FakeSettings& gpu) {
    if (gpu.number("mig", 0) != 1) return abi::kNotSupported;
    if (privileged && gpu.number("mig_permission", 1) == 0) return abi::kNoPermission;
    if (const abi::Return told = told_for(function); told != abi::kSuccess) return told;
    return answer(gpu);
  });
}

// The handle of an instance has its GPU and id; that of a compute instance has an additional bit.
constexpr std::uintptr_t kPart = std::uintptr_t{1} << 40U;
void* instance_handle(const FakeMigInstance& one) {
  return reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
      (std::uintptr_t{one.gpu} + 1) << 16U | one.id);
}
void* part_handle(const FakeMigInstance& one) {
  return reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
      reinterpret_cast<std::uintptr_t>(instance_handle(one)) | kPart);
}

// Calls `answer` with an existing instance, the state, and its GPU and profile.
using OfInstance = std::function<abi::Return(FakeMigInstance&, FakeMig&, const FakeSettings&,
                                             const FakeMigProfile&)>;
abi::Return of_instance(const char* function, void* handle, bool part, const OfInstance& answer) {
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  if (((bits & kPart) != 0) != part) return abi::kInvalidArgument;
  const auto gpu_number = static_cast<std::uint32_t>((bits & ~kPart) >> 16U) - 1;
  const auto id = static_cast<std::uint32_t>(bits & 0xffffU);
  return of_divided(function, gpulet::support::handle_of(gpu_number), true,
                    [&](const FakeSettings& gpu) {
                      const std::lock_guard lock(file_mutex());
                      FakeMig state = FakeMig::read();
                      for (FakeMigInstance& one : state.instances) {
                        if (one.gpu != gpu_number || one.id != id) continue;
                        const auto profiles = profiles_of(gpu);
                        return answer(one, state, gpu, *by_number(profiles, one.profile));
                      }
                      return abi::kInvalidArgument;
                    });
}

std::string name_of(const FakeMigProfile& profile, std::uint32_t start) {
  return std::to_string(profile.slices) + "g@" + std::to_string(start);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the library's names
extern "C" {

abi::Return nvmlDeviceGetMigMode(abi::Device device, abi::Count* now, abi::Count* later) {
  return of_device(device, [&](const FakeSettings& gpu) {
    const auto mig = gpu.number("mig", 0);
    if (mig < 0) return abi::kNotSupported;
    *now = static_cast<abi::Count>(mig);
    *later = static_cast<abi::Count>(gpu.number("mig_later", mig));
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetGpuInstanceProfileInfo(abi::Device device, abi::Count number,
                                                abi::GpuInstanceProfile* info) {
  return of_divided(__func__, device, false, [&](const FakeSettings& gpu) {
    if (number > 9) return abi::kInvalidArgument;  // like libraries without the newer profiles
    const auto profiles = profiles_of(gpu);
    const FakeMigProfile* const profile = by_number(profiles, number);
    if (profile == nullptr) return abi::kNotSupported;
    const std::uint32_t slices = gpu.number("mig_slices", 7) == 4 ? 4 : 8;
    const auto mib = static_cast<unsigned long long>(gpu.number("memory_mib", 143771));
    *info = {profile->id,
             0,
             profile->slices,
             profile->most,
             profile->sms,
             1,
             0,
             0,
             0,
             0,
             mib * profile->size / slices * 97 / 100};
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(abi::Device device, abi::Count id,
                                                          abi::Placement* placements,
                                                          abi::Count* count) {
  return of_divided(__func__, device, true, [&](const FakeSettings& gpu) {
    const auto profiles = profiles_of(gpu);
    const FakeMigProfile* const profile = by_id(profiles, id);
    if (profile == nullptr) return abi::kInvalidArgument;
    *count = static_cast<abi::Count>(profile->starts.size());
    for (std::size_t at = 0; placements != nullptr && at < profile->starts.size(); ++at)
      placements[at] = {profile->starts[at], profile->size};
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetGpuInstances(abi::Device device, abi::Count id, abi::GpuInstance* found,
                                      abi::Count* count) {
  return of_divided(__func__, device, true, [&](const FakeSettings& gpu) {
    const auto profiles = profiles_of(gpu);
    const FakeMigProfile* const profile = by_id(profiles, id);
    if (profile == nullptr) return abi::kInvalidArgument;
    const std::lock_guard lock(file_mutex());
    *count = 0;
    for (const FakeMigInstance& one : FakeMig::read().instances) {
      if (one.gpu == number_of_device(device) && one.profile == profile->number)
        found[(*count)++] = instance_handle(one);
    }
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetGpuInstanceById(abi::Device device, abi::Count id,
                                         abi::GpuInstance* found) {
  return of_divided(__func__, device, true, [&](const FakeSettings&) {
    const std::lock_guard lock(file_mutex());
    for (const FakeMigInstance& one : FakeMig::read().instances) {
      if (one.gpu != number_of_device(device) || one.id != id) continue;
      *found = instance_handle(one);
      return abi::kSuccess;
    }
    return abi::kNotFound;
  });
}
abi::Return nvmlDeviceCreateGpuInstanceWithPlacement(abi::Device device, abi::Count id,
                                                     const abi::Placement* placement,
                                                     abi::GpuInstance* made) {
  return of_divided(__func__, device, true, [&](const FakeSettings& gpu) {
    const auto profiles = profiles_of(gpu);
    const FakeMigProfile* const profile = by_id(profiles, id);
    if (profile == nullptr || placement->size != profile->size ||
        std::count(profile->starts.begin(), profile->starts.end(), placement->start) == 0)
      return abi::kInvalidArgument;
    ::usleep(static_cast<useconds_t>(gpu.number("mig_takes_ms", 0) * 1000));
    const std::lock_guard lock(file_mutex());
    FakeMig state = FakeMig::read();
    std::uint32_t taken = 0;
    std::uint32_t alike = 0;
    for (const FakeMigInstance& one : state.instances) {
      if (one.gpu != number_of_device(device)) continue;
      taken |= bits_of(*by_number(profiles, one.profile), one.start);
      alike += one.profile == profile->number ? 1 : 0;
    }
    if ((taken & bits_of(*profile, placement->start)) != 0 || alike == profile->most)
      return abi::kInsufficientResources;
    *made = instance_handle(state.add(number_of_device(device), profile->number, placement->start));
    state.write();
    record_fake_call("create " + name_of(*profile, placement->start));
    return abi::kSuccess;
  });
}
abi::Return nvmlGpuInstanceDestroy(abi::GpuInstance handle) {
  return of_instance(
      __func__, handle, false,
      [](FakeMigInstance& one, FakeMig& state, const FakeSettings& gpu, const auto& profile) {
        if (one.whole || is_in_use(gpu, one.start)) return abi::kInUse;
        record_fake_call("destroy " + name_of(profile, one.start));
        state.instances.erase(state.instances.begin() + (&one - state.instances.data()));
        state.write();
        return abi::kSuccess;
      });
}
abi::Return nvmlGpuInstanceGetInfo(abi::GpuInstance handle, abi::GpuInstanceInfo* info) {
  return of_instance(
      __func__, handle, false,
      [info](FakeMigInstance& one, FakeMig&, const FakeSettings&, const FakeMigProfile& profile) {
        *info = {
            gpulet::support::handle_of(one.gpu), one.id, profile.id, {one.start, profile.size}};
        return abi::kSuccess;
      });
}
abi::Return nvmlGpuInstanceGetComputeInstanceProfileInfo(abi::GpuInstance handle, abi::Count number,
                                                         abi::Count engines,
                                                         abi::ComputeInstanceProfile* info) {
  return of_instance(__func__, handle, false,
                     [=](FakeMigInstance&, FakeMig&, const FakeSettings&, const auto& profile) {
                       constexpr std::uint32_t kSlices[] = {1, 2, 3, 4, 7, 8, 6, 1};
                       if (number >= 8 || engines != 0) return abi::kInvalidArgument;
                       if (kSlices[number] > profile.slices) return abi::kNotSupported;
                       *info = {number,
                                kSlices[number],
                                profile.slices / kSlices[number],
                                profile.sms * kSlices[number] / profile.slices,
                                1,
                                0,
                                0,
                                0,
                                0};
                       return abi::kSuccess;
                     });
}
abi::Return nvmlGpuInstanceGetComputeInstances(abi::GpuInstance handle, abi::Count id,
                                               abi::ComputeInstance* found, abi::Count* count) {
  return of_instance(__func__, handle, false,
                     [=](FakeMigInstance& one, FakeMig&, const FakeSettings&, const auto& profile) {
                       constexpr std::uint32_t kSlices[] = {1, 2, 3, 4, 7, 8, 6};
                       *count = one.whole && id < 7 && kSlices[id] == profile.slices ? 1 : 0;
                       if (*count == 1) *found = part_handle(one);
                       return abi::kSuccess;
                     });
}
abi::Return nvmlGpuInstanceCreateComputeInstance(abi::GpuInstance handle, abi::Count id,
                                                 abi::ComputeInstance* made) {
  return of_instance(
      __func__, handle, false,
      [=](FakeMigInstance& one, FakeMig& state, const FakeSettings&, const auto& profile) {
        constexpr std::uint32_t kSlices[] = {1, 2, 3, 4, 7, 8, 6};
        if (id >= 7 || kSlices[id] != profile.slices) return abi::kInvalidArgument;
        if (one.whole) return abi::kInsufficientResources;
        one.whole = true;
        *made = part_handle(one);
        state.write();
        return abi::kSuccess;
      });
}
abi::Return nvmlComputeInstanceDestroy(abi::ComputeInstance handle) {
  return of_instance(
      __func__, handle, true,
      [](FakeMigInstance& one, FakeMig& state, const FakeSettings& gpu, const auto&) {
        if (!one.whole) return abi::kInvalidArgument;
        if (is_in_use(gpu, one.start)) return abi::kInUse;
        one.whole = false;
        state.write();
        return abi::kSuccess;
      });
}
abi::Return nvmlDeviceGetMaxMigDeviceCount(abi::Device device, abi::Count* count) {
  return of_device(device, [count](const FakeSettings& gpu) {
    *count = gpu.number("mig", 0) == 1 ? 7 : 0;
    return abi::kSuccess;
  });
}
// Numbers are ids, with gaps.
abi::Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device device, abi::Count number,
                                                abi::Device* found) {
  return of_divided(__func__, device, false, [&](const FakeSettings&) {
    const std::lock_guard lock(file_mutex());
    for (const FakeMigInstance& one : FakeMig::read().instances) {
      if (one.gpu != number_of_device(device) || one.id != number + 1 || !one.whole) continue;
      *found = reinterpret_cast<abi::Device>(  // NOLINT(performance-no-int-to-ptr)
          reinterpret_cast<std::uintptr_t>(instance_handle(one)) | kFakeMigDevice);
      return abi::kSuccess;
    }
    return abi::kNotFound;
  });
}
abi::Return nvmlDeviceGetGpuInstanceId(abi::Device device, abi::Count* id) {
  *id = static_cast<abi::Count>(reinterpret_cast<std::uintptr_t>(device) & 0xffffU);
  return abi::kSuccess;
}
abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device device, abi::Count* count,
                                                    abi::RunningProcess* running) {
  const auto bits = reinterpret_cast<std::uintptr_t>(device) & ~kFakeMigDevice;
  return of_instance(__func__, reinterpret_cast<void*>(bits),
                     false,  // NOLINT(performance-no-int-to-ptr)
                     [=](FakeMigInstance& one, FakeMig&, const FakeSettings& gpu, const auto&) {
                       *count = is_in_use(gpu, one.start) ? 1 : 0;
                       if (*count == 1) running[0] = {4711, 0, one.id, 0};
                       return abi::kSuccess;
                     });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

namespace gpulet::support {

abi::Return copy_mig_uuid(abi::Device device, char* buffer, abi::Count size) {
  const auto bits = reinterpret_cast<std::uintptr_t>(device) & ~kFakeMigDevice;
  return of_instance(
      __func__, reinterpret_cast<void*>(bits), false,  // NOLINT(performance-no-int-to-ptr)
      [=](FakeMigInstance& one, FakeMig&, const FakeSettings&, const auto&) {
        return one.whole ? copy_text(one.uuid(), buffer, size) : abi::kInvalidArgument;
      });
}

}  // namespace gpulet::support
