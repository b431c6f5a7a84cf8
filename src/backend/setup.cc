#include "backend/setup.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/text.h"
#include "gpulet/partition/drivers/drivers.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::backend {

// ---- devices and files

namespace {

constexpr std::string_view kSimulated = "simulated";

// The cores of device `number` among those that `described` stands for: an equal part of the listed
// cores, or of all that this process may use.
std::vector<std::uint32_t> cores_of(const config::DeviceConfig& described, std::uint32_t number) {
  const auto cores = described.cores.empty() ? partition::usable_cores() : described.cores;
  const auto each = cores.size() / described.count;
  const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(number * each);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

bool is_gpu(const config::DeviceConfig& described) {
  const auto& by = described.partitioning;
  return by == "mps" || by == "green" || by == "mig";
}

std::optional<partition::MemoryLimits> memory_limits(
    const std::optional<config::ProxyMemory>& memory, const config::DeviceConfig& device) {
  if (!memory) return std::nullopt;
  return partition::MemoryLimits{
      .factor = memory->factor,
      .floor_bytes = memory->floor_mb * kBytesPerMegabyte,
      .device_bytes = static_cast<std::uint64_t>(device.memory_mb * kBytesPerMegabyte)};
}

// Makes the driver. Sets the properties of `device` that only the driver knows, and the GPU's UUID.
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
    GPULET_TRY(auto made, gpus.make(described, number));
    device.memory_mb = static_cast<double>(made.memory_bytes) / kBytesPerMegabyte;
    gpu = made.uuid;
    return std::move(made).driver;
  }
  return Status(StatusCode::invalid,
                fmt::format("unknown partitioning \"{}\"; this backend supports \"cpu_quota\", "
                            "\"green\", \"mig\", \"mps\" and \"simulated\"",
                            described.partitioning));
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
  if (std::filesystem::is_regular_file(program, error)) return program;
  return Status(StatusCode::not_found,
                fmt::format("no proxy program {}; build it, or set \"proxy\"", program.string()));
}

// Empty: there is none, or the configuration names the program for all models.
std::filesystem::path find_onnx_proxy(const config::BackendConfig& config,
                                      const config::DeviceConfig& described,
                                      const std::filesystem::path& proxy) {
  if (!config.proxy.empty() || described.partitioning == kSimulated) return {};
  std::error_code error;
  auto program = proxy.parent_path() / "gpulet-proxy-onnx";
  return std::filesystem::is_regular_file(program, error) ? program : std::filesystem::path();
}

struct Devices {
  std::vector<HostedDevice> present;
  std::vector<std::string> absent;
};

// Whether a failure means that the machine lacks a driver, a GPU or its daemon.
bool may_be_absent(const config::DeviceConfig& described, const Status& why) {
  const bool missing = why.code() == StatusCode::unavailable || why.code() == StatusCode::not_found;
  return is_gpu(described) && missing;
}

Result<Devices> make_devices(const config::BackendConfig& config,
                             const GpuEnvironment& environment) {
  auto offered = schedule::devices_from({config.node, config.devices});
  auto offer = offered.begin();
  GpuDevices gpus(environment);
  Devices devices;
  Status first_absence;
  for (const auto& described : config.devices) {
    const auto program = find_proxy(config, described.partitioning);
    for (std::uint32_t number = 0; number < described.count; ++number, ++offer) {
      const auto where = fmt::format("device {} ({})", offer->key.device, described.type);
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
                          std::move(gpu),
                          find_onnx_proxy(config, described, program.value())};
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

}  // namespace

// The certificate must name the node: the frontend accepts no other name.
Result<net::TlsContextPointer> read_tls(const config::BackendConfig& config) {
  if (!config.tls) return net::TlsContextPointer();
  auto tls = net::TlsContext::client(*config.tls);
  if (!tls.ok() || tls.value()->certifies(config.node)) return tls;
  return Status(
      StatusCode::invalid,
      fmt::format("{} certifies {}, not the node {}; use a certificate with the node's name",
                  config.tls->certificate.string(), joined(tls.value()->certified_names()),
                  config.node));
}

Result<Setup> make_setup(const config::BackendConfig& config, const GpuEnvironment& environment) {
  GPULET_TRY(auto devices, make_devices(config, environment));
  GPULET_TRY(auto proxy_user, choose_proxy_user(config.proxy_user));
  auto tls = read_tls(config);
  if (!tls.ok()) return tls.status().within("tls");
  store::ModelStoreOptions options{.readable_by_others = proxy_user.has_value()};
  if (config.model_store_mb > 0) options.max_bytes = std::uint64_t{config.model_store_mb} << 20U;
  GPULET_TRY(auto store, store::ModelStore::open(config.model_store, std::move(options)));
  std::shared_ptr<const profile::ProfileSet> profiles;
  if (any_simulated(config)) {
    GPULET_TRY(auto read, profile::read_profiles(config.profiles));
    profiles = std::make_shared<const profile::ProfileSet>(std::move(read));
  }
  auto [present, absent] = std::move(devices);
  return Setup{config,
               std::move(present),
               std::move(store),
               std::move(profiles),
               std::move(proxy_user),
               std::move(tls).value(),
               std::move(absent),
               {.nvml = environment.nvml, .interval = environment.poll_interval}};
}

// ---- the user of proxies

namespace {

constexpr const char* kDefaultUser = "gpulet";
constexpr const char* kFallbackUser = "nobody";

// Not thread-safe, so it is called only before the daemon has other threads.
const passwd* look_up(const std::string& name) {
  return ::getpwnam(name.c_str());  // NOLINT(concurrency-mt-unsafe)
}

// The capabilities that root needs to run processes as another user and to limit them.
struct NeededCapability {
  unsigned number;
  const char* name;
};
constexpr std::array kNeeded{
    NeededCapability{CAP_SETUID, "CAP_SETUID"}, NeededCapability{CAP_SETGID, "CAP_SETGID"},
    NeededCapability{CAP_KILL, "CAP_KILL"}, NeededCapability{CAP_SYS_NICE, "CAP_SYS_NICE"}};

std::string missing_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  std::vector<std::string> missing;
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return {};
  for (const auto& [number, name] : kNeeded) {
    if ((sets.at(number / 32).effective & (1U << (number % 32))) != 0) continue;
    missing.emplace_back(name);
  }
  return joined(missing);
}

// The groups that own the GPU device nodes, such as video and render.
std::vector<gid_t> gpu_groups() {
  std::vector<gid_t> groups;
  const auto take = [&groups](const std::filesystem::path& node) {
    struct stat status {};
    const bool device = ::stat(node.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
    if (device && status.st_gid != 0) groups.push_back(status.st_gid);
  };
  for (const std::string_view folder : {"/dev", "/dev/dri"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto name = entry->path().filename().string();
      if (name.starts_with("nvidia") || folder == "/dev/dri") take(entry->path());
    }
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

}  // namespace

Result<std::optional<ProxyUser>> choose_proxy_user(const std::string& name) {
  using Chosen = std::optional<ProxyUser>;
  const uid_t own = ::geteuid();
  const passwd* found = nullptr;
  if (!name.empty()) {
    found = look_up(name);
  } else if (own == 0) {
    found = look_up(kDefaultUser);
    if (found == nullptr) found = look_up(kFallbackUser);
  } else {
    return Chosen();
  }
  if (found == nullptr) {
    return Status(StatusCode::invalid,
                  name.empty() ? "there is no user gpulet or nobody to run proxies as; set "
                                 "\"proxy_user\""
                               : "there is no user \"" + name + "\"; correct \"proxy_user\"");
  }
  if (found->pw_uid == own) return Chosen();
  if (own != 0) {
    return Status(
        StatusCode::invalid,
        fmt::format("only root may run proxies as another user; remove \"proxy_user\", or "
                    "start the backend as \"{}\"",
                    name));
  }
  const std::string missing = missing_capabilities();
  if (!missing.empty()) {
    return Status(
        StatusCode::unavailable,
        fmt::format("root lacks {}, which it needs to run proxies as user {}; add it, run "
                    "the backend as that user, or set \"proxy_user\" to \"root\"",
                    missing, found->pw_name));
  }
  return Chosen(ProxyUser{found->pw_name, found->pw_uid, found->pw_gid, gpu_groups()});
}

}  // namespace gpulet::backend
