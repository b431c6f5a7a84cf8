#include "gpulet/backend/setup.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "gpulet/backend/gpu_devices.h"
#include "gpulet/core/megabytes.h"
#include "gpulet/partition/drivers/cpu_quota.h"
#include "gpulet/partition/drivers/simulated.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/from_config.h"

namespace gpulet::backend {
namespace {

constexpr std::string_view kSimulated = "simulated";
constexpr std::string_view kMps = "mps";
constexpr std::string_view kGreen = "green";
constexpr std::string_view kMig = "mig";

// The cores of the device `number` of those that `described` stands for: its own run of the list,
// or of all that this process may use.
std::vector<std::uint32_t> cores_of(const config::DeviceConfig& described, std::uint32_t number) {
  const auto cores = described.cores.empty() ? partition::usable_cores() : described.cores;
  const auto each = cores.size() / described.count;
  const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(number * each);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

bool is_gpu(const config::DeviceConfig& described) {
  return described.partitioning == kMps || described.partitioning == kGreen ||
         described.partitioning == kMig;
}

std::optional<partition::MemoryLimits> memory_limits(
    const std::optional<config::ProxyMemory>& memory, const config::DeviceConfig& device) {
  if (!memory) return std::nullopt;
  return partition::MemoryLimits{
      .factor = memory->factor,
      .floor_bytes = memory->floor_mb * kBytesPerMegabyte,
      .device_bytes = static_cast<std::uint64_t>(device.memory_mb * kBytesPerMegabyte)};
}

// Also what the device is like, as far as only its driver knows, and which GPU it is.
Result<std::unique_ptr<partition::PartitionDriver>> make_driver(
    const config::DeviceConfig& described, std::uint32_t number,
    const std::optional<config::ProxyMemory>& memory, GpuDevices& gpus, schedule::Device& device,
    std::string& gpu) {
  if (described.partitioning == kSimulated) {
    if (!device.mig) return partition::make_simulated_driver();
    return partition::make_simulated_driver(
        partition::SimulatedInstances{*device.mig, device.processes_per_instance});
  }
  if (described.partitioning == "cpu_quota") {
    auto cores = cores_of(described, number);
    device.cores = static_cast<double>(cores.size());
    return partition::make_cpu_quota_driver(std::move(cores), partition::CpuMechanism::automatic,
                                            memory_limits(memory, described));
  }
  if (is_gpu(described)) {
    auto made = described.partitioning == kGreen ? gpus.make_green(described, number)
                : described.partitioning == kMig ? gpus.make_mig(described, number)
                                                 : gpus.make_mps(described, number);
    if (!made.ok()) return made.status();
    device.memory_mb = static_cast<double>(made.value().memory_bytes) / kBytesPerMegabyte;
    gpu = made.value().uuid;
    return std::move(made).value().driver;
  }
  return Status(StatusCode::invalid, "this backend cannot divide devices by \"" +
                                         described.partitioning +
                                         "\"; it knows \"cpu_quota\", \"green\", \"mig\", "
                                         "\"mps\" and \"simulated\"");
}

Result<std::filesystem::path> find_proxy(const config::BackendConfig& config,
                                         const std::string& partitioning) {
  std::error_code error;
  auto program = config.proxy;
  if (program.empty()) {
    const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
    program = own.parent_path() /
              (partitioning == kSimulated ? "gpulet-proxy-simulated" : "gpulet-proxy");
  }
  if (!std::filesystem::is_regular_file(program, error)) {
    return Status(StatusCode::not_found, "there is no proxy program " + program.string() +
                                             "; build it, or name one in \"proxy\"");
  }
  return program;
}

struct Devices {
  std::vector<HostedDevice> present;
  std::vector<std::string> absent;
};

// What a machine may lack without being wrong: its driver, a GPU, the daemon that divides it.
bool may_be_absent(const config::DeviceConfig& described, const Status& why) {
  const bool missing = why.code() == StatusCode::unavailable || why.code() == StatusCode::not_found;
  return is_gpu(described) && missing;
}

Result<Devices> make_devices(const config::BackendConfig& config, const GpuPlaces& places) {
  auto offered = schedule::devices_from({config.node, config.devices});
  auto offer = offered.begin();
  GpuDevices gpus(places);
  Devices devices;
  Status first_absence;
  for (const auto& described : config.devices) {
    const auto program = find_proxy(config, described.partitioning);
    for (std::uint32_t number = 0; number < described.count; ++number, ++offer) {
      const auto where =
          "device " + std::to_string(offer->key.device) + " (" + described.type + ")";
      if (!program.ok()) return program.status().within(where);
      std::string gpu;
      auto driver = make_driver(described, number, config.proxy_memory, gpus, *offer, gpu);
      if (!driver.ok()) {
        const auto why = driver.status().within(where);
        if (!may_be_absent(described, why)) return why;
        devices.absent.push_back(why.message());
        if (first_absence.ok()) first_absence = why;
        continue;
      }
      HostedDevice device{{*offer, driver.value()->mechanism(), driver.value()->traits()},
                          std::move(driver).value(),
                          program.value(),
                          std::move(gpu)};
      device.offer.device.key.device = static_cast<std::uint32_t>(devices.present.size());
      devices.present.push_back(std::move(device));
    }
  }
  if (devices.present.empty() && !first_absence.ok()) return first_absence;
  return devices;
}

bool any_simulated(const config::BackendConfig& config) {
  return std::any_of(config.devices.begin(), config.devices.end(),
                     [](const auto& device) { return device.partitioning == kSimulated; });
}

// The frontend accepts no other name than the node's.
Result<net::TlsContextPointer> make_tls(const config::BackendConfig& config) {
  if (!config.tls) return net::TlsContextPointer();
  auto tls = net::TlsContext::client(*config.tls);
  if (!tls.ok() || tls.value()->certifies(config.node)) return tls;
  std::string names;
  for (const auto& name : tls.value()->certified_names())
    names += (names.empty() ? "" : ", ") + name;
  return Status(StatusCode::invalid, config.tls->certificate.string() + ": is not for the node " +
                                         config.node + " but for " + names +
                                         "; give the node a certificate of its own name");
}

ModelStoreOptions store_options(const config::BackendConfig& config) {
  ModelStoreOptions options;
  if (config.model_store_mb > 0) options.most_bytes = std::uint64_t{config.model_store_mb} << 20U;
  return options;
}

}  // namespace

Result<Setup> make_setup(const config::BackendConfig& config, const GpuPlaces& places) {
  auto devices = make_devices(config, places);
  if (!devices.ok()) return devices.status();
  auto proxy_user = choose_proxy_user(config.proxy_user);
  if (!proxy_user.ok()) return proxy_user.status();
  auto tls = make_tls(config);
  if (!tls.ok()) return tls.status().within("tls");
  ModelStoreOptions options = store_options(config);
  options.read_by_others = proxy_user.value().has_value();
  auto store = ModelStore::open(config.model_store, std::move(options));
  if (!store.ok()) return store.status();
  std::shared_ptr<const profile::ProfileSet> profiles;
  if (any_simulated(config)) {
    auto read = profile::read_profiles(config.profiles);
    if (!read.ok()) return read.status();
    profiles = std::make_shared<const profile::ProfileSet>(std::move(read).value());
  }
  auto [present, absent] = std::move(devices).value();
  return Setup{config,
               std::move(present),
               std::move(store).value(),
               std::move(profiles),
               std::move(proxy_user).value(),
               std::move(tls).value(),
               std::move(absent),
               {.nvml = places.nvml, .every = places.look_every}};
}

}  // namespace gpulet::backend
