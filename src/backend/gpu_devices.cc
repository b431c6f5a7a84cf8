#include "gpulet/backend/gpu_devices.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "gpulet/base/bytes.h"

namespace gpulet::backend {
namespace {

// MPS allows 48 clients per GPU, and 60 since the driver of CUDA 13.1.
constexpr std::uint32_t kMaxClients = 48;
constexpr std::uint32_t kMaxClientsOfNewDriver = 60;
constexpr unsigned kNewDriver = 590;

std::uint32_t max_clients_of(const std::string& driver_version) {
  unsigned major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major >= kNewDriver ? kMaxClientsOfNewDriver : kMaxClients;
}

// The directory for MPS's sockets. Other users must not be able to write to it, as they could
// replace the sockets.
Result<std::filesystem::path> make_mps_directory() {
  const auto user = ::geteuid();
  const char* const runtime = ::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::error_code ignored;
  std::filesystem::path directory = "/run/gpulet-mps";
  if (user != 0) {
    directory =
        runtime != nullptr && *runtime != 0
            ? std::filesystem::path(runtime) / "gpulet-mps"
            : std::filesystem::temp_directory_path(ignored) / fmt::format("gpulet-mps-{}", user);
  }
  // Clients of a root backend run as another user, who must be able to reach the sockets.
  const mode_t mode = user == 0 ? 0711 : 0700;
  struct stat found {};
  if (::mkdir(directory.c_str(), mode) != 0 && errno != EEXIST) {
    return Status(StatusCode::unavailable, fmt::format("cannot create the directory {} for MPS: {}",
                                                       directory.string(), ::strerror(errno)));
  }
  const bool is_mine = ::lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                       found.st_uid == user && (found.st_mode & 0022U) == 0;
  if (!is_mine) {
    return Status(
        StatusCode::unavailable,
        fmt::format("the directory {} for MPS does not belong to user {} alone; remove it",
                    directory.string(), user));
  }
  return directory;
}

}  // namespace

Result<GpuDevices::Machine> GpuDevices::query(const GpuEnvironment& environment) {
  GPULET_TRY(const auto library, gpu::Nvml::load(environment.nvml));
  GPULET_TRY(auto gpus, library.gpus());
  const auto version = library.driver_version();
  Machine machine{std::move(gpus), {}, version.ok() ? version.value() : std::string()};
  std::vector<std::string> uuids;
  for (const auto& gpu : machine.gpus) uuids.push_back(gpu.uuid);
  if (!uuids.empty())
    machine.cuda = environment.query_cuda({.uuids = uuids, .library = environment.cuda});
  return machine;
}

Result<GpuDevices::Found> GpuDevices::find(const config::DeviceConfig& described,
                                           std::uint32_t number) {
  if (!machine_) machine_.emplace(query(environment_));
  if (!machine_->ok()) return machine_->status();
  const auto& machine = machine_->value();
  GPULET_TRY(const auto gpu,
             gpu::choose_gpu(machine.gpus,
                             described.gpu.empty() ? std::to_string(number) : described.gpu));
  const auto& name = gpu.uuid;
  if (gpu.mig_enabled && described.partitioning != "mig") {
    return Status(
        StatusCode::unavailable,
        fmt::format(
            "{} is in MIG mode, which excludes \"{}\"; use another GPU, or divide this one by mig",
            name, described.partitioning));
  }
  if (!gpu.shareable) {
    return Status(StatusCode::unavailable,
                  name +
                      " accepts no processes: its compute mode is \"prohibited\"; change it "
                      "with nvidia-smi -c");
  }
  if (used_.contains(name)) {
    return Status(StatusCode::invalid,
                  name + " already belongs to another device of this file; list each GPU once");
  }
  const auto memory = described.memory_mb > 0
                          ? static_cast<std::uint64_t>(described.memory_mb * kBytesPerMegabyte)
                          : gpu.memory_bytes;
  return Found{gpu, machine.cuda[gpu.number], memory};
}

Status GpuDevices::ensure_mps_directory() {
  if (!environment_.mps.directory.empty()) return {};
  GPULET_TRY(auto directory, make_mps_directory());
  environment_.mps.directory = std::move(directory);
  return {};
}

Result<GpuDevices::Driver> GpuDevices::make_mps(const Found& found) {
  if (Status ready = ensure_mps_directory(); !ready.ok()) return ready;
  auto driver =
      partition::make_mps_driver({.uuid = found.gpu.uuid,
                                  .memory_bytes = found.memory_bytes,
                                  .sms = found.cuda.sms.ok() ? found.cuda.sms.value() : 0,
                                  .max_clients = max_clients_of(machine_->value().driver_version)},
                                 environment_.mps);
  if (!driver.ok()) return driver.status().within(found.gpu.uuid);
  return driver;
}

Result<GpuDevices::Driver> GpuDevices::make_green(const Found& found,
                                                  const config::DeviceConfig& described) {
  const auto& groups = found.cuda.groups;
  if (!groups.ok()) return groups.status().within(found.gpu.uuid);
  const partition::GreenGpu divided{found.gpu.uuid, groups.value()};
  for (const Share size : described.sizes) {
    if (Status possible = partition::check_green_size(divided, size); !possible.ok())
      return possible;
  }
  return partition::make_green_driver(divided);
}

Result<GpuDevices::Driver> GpuDevices::make_mig(const Found& found,
                                                const config::DeviceConfig& described) {
  if (described.processes_per_instance > 1) {
    if (Status ready = ensure_mps_directory(); !ready.ok()) return ready;
  }
  return partition::make_mig_driver(
      {found.gpu.uuid, *described.geometry, described.processes_per_instance}, environment_.nvml,
      environment_.mps);
}

Result<GpuDevice> GpuDevices::make(const config::DeviceConfig& described, std::uint32_t number) {
  const bool mig = described.partitioning == "mig";
  if (mig && !described.geometry) {
    return Status(StatusCode::invalid,
                  "a device that is divided by MIG needs a geometry; add \"geometry\"");
  }
  GPULET_TRY(const auto found, find(described, number));
  GPULET_TRY(auto driver, mig                                 ? make_mig(found, described)
                          : described.partitioning == "green" ? make_green(found, described)
                                                              : make_mps(found));
  const auto& uuid = found.gpu.uuid;
  used_.insert(uuid);
  return GpuDevice{uuid, std::move(driver), found.memory_bytes};
}

}  // namespace gpulet::backend
