#include "gpulet/backend/setup.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "gpulet/partition/drivers/cpu_quota.h"
#include "gpulet/partition/drivers/simulated.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/from_config.h"

namespace gpulet::backend {
namespace {

constexpr std::string_view kSimulated = "simulated";

// The cores of the device `number` of those that `described` stands for: its own run of the list,
// or of all that this process may use.
std::vector<std::uint32_t> cores_of(const config::DeviceConfig& described, std::uint32_t number) {
  const auto cores = described.cores.empty() ? partition::usable_cores() : described.cores;
  const auto each = cores.size() / described.count;
  const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(number * each);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

Result<std::unique_ptr<partition::PartitionDriver>> make_driver(
    const config::DeviceConfig& described, std::uint32_t number) {
  if (described.partitioning == kSimulated) return partition::make_simulated_driver();
  if (described.partitioning == "cpu_quota") {
    return partition::make_cpu_quota_driver(cores_of(described, number));
  }
  return Status(StatusCode::invalid, "this backend cannot divide devices by \"" +
                                         described.partitioning +
                                         "\"; it knows \"cpu_quota\" and \"simulated\"");
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

Result<std::vector<HostedDevice>> make_devices(const config::BackendConfig& config) {
  const auto offered = schedule::devices_from({config.node, config.devices});
  std::vector<HostedDevice> devices;
  for (const auto& described : config.devices) {
    for (std::uint32_t number = 0; number < described.count; ++number) {
      HostedDevice device;
      device.offer.device = offered[devices.size()];
      const auto where = "device " + std::to_string(devices.size()) + " (" + described.type + ")";
      auto driver = make_driver(described, number);
      if (!driver.ok()) return driver.status().within(where);
      auto program = find_proxy(config, described.partitioning);
      if (!program.ok()) return program.status().within(where);
      device.driver = std::move(driver).value();
      device.offer.mechanism = device.driver->mechanism();
      device.proxy_program = std::move(program).value();
      devices.push_back(std::move(device));
    }
  }
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

}  // namespace

Result<Setup> make_setup(const config::BackendConfig& config) {
  auto devices = make_devices(config);
  if (!devices.ok()) return devices.status();
  auto proxy_user = choose_proxy_user(config.proxy_user);
  if (!proxy_user.ok()) return proxy_user.status();
  auto tls = make_tls(config);
  if (!tls.ok()) return tls.status().within("tls");
  auto store = ModelStore::open(config.model_store);
  if (!store.ok()) return store.status();
  std::shared_ptr<const profile::ProfileSet> profiles;
  if (any_simulated(config)) {
    auto read = profile::read_profiles(config.profiles);
    if (!read.ok()) return read.status();
    profiles = std::make_shared<const profile::ProfileSet>(std::move(read).value());
  }
  return Setup{config,
               std::move(devices).value(),
               std::move(store).value(),
               std::move(profiles),
               std::move(proxy_user).value(),
               std::move(tls).value()};
}

}  // namespace gpulet::backend
