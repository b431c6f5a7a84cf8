#include "backend/gpu_devices.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "gpulet/partition/drivers/mps.h"

namespace gpulet::backend {
namespace {

// MPS takes 48 contexts of a GPU, and 60 since CUDA 13.1, whose driver is this one.
constexpr std::uint32_t kClients = 48;
constexpr std::uint32_t kMoreClients = 60;
constexpr unsigned kDriverOfMoreClients = 590;
constexpr double kBytesOfMegabyte = 1024.0 * 1024.0;

std::uint32_t clients_of(const std::string& driver_version) {
  unsigned major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major >= kDriverOfMoreClients ? kMoreClients : kClients;
}

// Sockets in a folder that somebody else may write to would be somebody else's.
Result<std::filesystem::path> own_folder() {
  const auto user = ::geteuid();
  const char* const runtime = ::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::error_code ignored;
  std::filesystem::path folder = "/run/gpulet-mps";
  if (user != 0) {
    folder = runtime != nullptr && *runtime != 0 ? std::filesystem::path(runtime) / "gpulet-mps"
                                                 : std::filesystem::temp_directory_path(ignored) /
                                                       ("gpulet-mps-" + std::to_string(user));
  }
  // Root's clients are of another user, who must find the sockets in it.
  const mode_t mode = user == 0 ? 0711 : 0700;
  struct stat found {};
  if (::mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
    return Status(StatusCode::unavailable,
                  "cannot make the folder " + folder.string() + " for MPS: " + ::strerror(errno));
  }
  const bool is_mine = ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                       found.st_uid == user && (found.st_mode & 0022U) == 0;
  if (!is_mine) {
    return Status(StatusCode::unavailable, "the folder " + folder.string() +
                                               " for MPS is writable for others than user " +
                                               std::to_string(user) + "; remove it");
  }
  return folder;
}

}  // namespace

Result<GpuDevices::Machine> GpuDevices::look(const std::filesystem::path& nvml) {
  const auto library = gpu::Nvml::load(nvml);
  if (!library.ok()) return library.status();
  auto gpus = library.value().gpus();
  if (!gpus.ok()) return gpus.status();
  return Machine{std::move(gpus).value(), library.value().driver_version().ok()
                                              ? library.value().driver_version().value()
                                              : std::string()};
}

Result<GpuDevice> GpuDevices::make_mps(const config::DeviceConfig& described,
                                       std::uint32_t number) {
  if (!machine_) machine_.emplace(look(places_.nvml));
  if (!machine_->ok()) return machine_->status();
  const auto& machine = machine_->value();
  const auto gpu =
      gpu::choose_gpu(machine.gpus, described.gpu.empty() ? std::to_string(number) : described.gpu);
  if (!gpu.ok()) return gpu.status();
  const auto& name = gpu.value().uuid;
  if (gpu.value().mig_enabled) {
    return Status(StatusCode::unavailable, name +
                                               " is in MIG mode, in which MPS has no whole GPU "
                                               "to divide; serve with another GPU");
  }
  if (!gpu.value().shareable) {
    return Status(StatusCode::unavailable,
                  name +
                      " takes no processes: its compute mode is prohibited; set another "
                      "(nvidia-smi -c)");
  }
  if (places_.mps.directory.empty()) {
    auto folder = own_folder();
    if (!folder.ok()) return folder.status();
    places_.mps.directory = std::move(folder).value();
  }
  GpuDevice made;
  made.memory_bytes = described.memory_mb > 0
                          ? static_cast<std::uint64_t>(described.memory_mb * kBytesOfMegabyte)
                          : gpu.value().memory_bytes;
  auto driver = partition::make_mps_driver({.uuid = name,
                                            .memory_bytes = made.memory_bytes,
                                            .max_clients = clients_of(machine.driver_version)},
                                           places_.mps);
  if (!driver.ok()) return driver.status().within(name);
  made.driver = std::move(driver).value();
  return made;
}

}  // namespace gpulet::backend
