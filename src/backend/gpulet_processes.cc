#include "backend/gpulet_processes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "gpulet/core/megabytes.h"

namespace gpulet::backend {
namespace {

// For a retiring gpulet's last batches; the frontend drains in less.
constexpr Duration kFinishTimeout = std::chrono::seconds(30);

bool has_one_process(const HostedDevice& device) {
  return device.driver->traits().change == partition::ChangeOfSize::in_place;
}

// Those of which processes are started for one gpulet each.
std::set<std::filesystem::path> programs_of(const std::vector<HostedDevice>& devices) {
  std::set<std::filesystem::path> programs;
  for (const auto& device : devices) {
    if (!has_one_process(device)) programs.insert(device.proxy_program);
  }
  return programs;
}

}  // namespace

GpuletProcesses::GpuletProcesses(const net::asio::any_io_executor& executor,
                                 std::vector<HostedDevice> devices, std::uint32_t warm_proxies,
                                 std::optional<ProxyUser> proxy_user, ProxyConfinement confinement,
                                 Tell tell)
    : executor_(executor),
      devices_(std::move(devices)),
      tell_(std::move(tell)),
      proxy_user_(std::move(proxy_user)),
      confinement_(std::move(confinement)),
      pool_(executor, programs_of(devices_), warm_proxies, proxy_user_, confinement_) {
  for (std::uint32_t device = 0; device < devices_.size() && warm_proxies > 0; ++device) {
    if (!changes_in_place(device)) continue;
    // Its first gpulet tries again, and tells.
    if (const auto started = start_device(device, true); !started.ok())
      spdlog::warn("device {}: {}", device, started.to_string());
  }
}

// Processes first: a share is released when nobody is left under it. A driver that takes its time
// to end one ends them all at once.
GpuletProcesses::~GpuletProcesses() {
  for (auto& [gpulet, running] : running_)
    running.proxy->kill({StatusCode::cancelled, "its backend ends"});
  device_processes_.clear();
  for (auto& [gpulet, running] : running_) {
    running.proxy.reset();
    devices_[running.device].driver->release(gpulet);
  }
}

// ---- the processes of devices

bool GpuletProcesses::changes_in_place(std::uint32_t device) const {
  return has_one_process(devices_[device]);
}

Status GpuletProcesses::start_device(std::uint32_t device, bool in_background) {
  auto started = DeviceProcess::start(
      executor_, {devices_[device].proxy_program, in_background, proxy_user_, {}, confinement_},
      [this, device](const Status& how) { device_ended(device, how); });
  if (!started.ok()) return started.status();
  spdlog::info("device {}: process {} serves all its gpulets", device, started.value()->pid());
  device_processes_[device] = std::move(started).value();
  return {};
}

// Told before the lanes are: how each of them ends is settled here.
void GpuletProcesses::device_ended(std::uint32_t device, const Status& how) {
  const auto ended = device_processes_.extract(device);
  spdlog::warn("device {}: process {} is gone: {}", device, ended.mapped()->pid(),
               how.ok() ? "it exited" : how.to_string());
  const auto loads = [device](const auto& entry) {
    return entry.second.device == device && entry.second.loading;
  };
  const bool one_is_to_blame = std::count_if(running_.begin(), running_.end(), loads) == 1;
  for (auto& entry : running_) {
    const bool to_blame = one_is_to_blame && loads(entry);
    if (entry.second.device == device && !to_blame)
      entry.second.end = partition::DeviceHealth::not_ready;
  }
}

Result<GpuletProcesses::Taken> GpuletProcesses::take(std::uint32_t device,
                                                     const partition::Grant& grant,
                                                     ProxyCallbacks callbacks) {
  if (grant.read_at_start) {
    auto started = ProxyProcess::start(
        executor_,
        {devices_[device].proxy_program, false, proxy_user_, grant.environment, confinement_},
        std::move(callbacks));
    if (!started.ok()) return started.status();
    return Taken{std::move(started).value(), "its own"};
  }
  if (!changes_in_place(device)) {
    auto taken = pool_.take(devices_[device].proxy_program, std::move(callbacks));
    if (!taken.ok()) return taken.status();
    return Taken{std::move(taken.value().process), taken.value().was_warm ? "warm" : "new"};
  }
  const bool there = device_processes_.contains(device);
  if (!there) {
    if (auto started = start_device(device, false); !started.ok()) return started;
  }
  auto lane = device_processes_.at(device)->add_lane(std::move(callbacks));
  if (!lane.ok()) return lane.status();
  return Taken{std::move(lane).value(), there ? "in" : "in new"};
}

partition::DeviceHealth GpuletProcesses::health_of(std::uint32_t device) const {
  const auto process = device_processes_.find(device);
  const bool ends = process != device_processes_.end() && !process->second->takes_lanes();
  const bool later = ends || !devices_[device].driver->ready();
  return later ? partition::DeviceHealth::not_ready : partition::DeviceHealth::works;
}

// ---- gpulets

void GpuletProcesses::start(serve::StartGpulet order) {
  const auto gpulet = order.gpulet;
  auto started = start_process(order);
  if (started.status.ok()) {
    tell_later(serve::ProxyStarted{gpulet});
  } else {
    running_.erase(gpulet);  // first: a share is released when nobody is left under it
    devices_[order.device].driver->release(gpulet);
    tell_later(serve::ProxyEnded{gpulet, started.status, health_of(order.device), started.cause});
  }
  tell_pool();
}

GpuletProcesses::Started GpuletProcesses::start_process(serve::StartGpulet& order) {
  auto& device = devices_[order.device];
  auto granted = device.driver->grant(
      {.gpulet = order.gpulet,
       .share = order.size,
       .memory_bytes = static_cast<std::uint64_t>(order.memory_mb * kBytesPerMegabyte),
       .instance = order.instance,
       .adjustable = order.adjustable});
  if (!granted.ok()) return {granted.status(), device.driver->blame()};
  auto taken = take(order.device, granted.value(), callbacks_for(order.gpulet, order.device));
  if (!taken.ok()) return {taken.status(), FailureCause::node_spawn};
  const auto pid = taken.value().proxy->pid();
  spdlog::info("gpulet {}: {} % of device {}, {} process {}", order.gpulet.value,
               order.size.percent, order.device, taken.value().kind, pid);
  auto& running = running_[order.gpulet];
  running = Running{order.device, std::move(taken.value().proxy)};
  auto attached = device.driver->attach(order.gpulet, pid);
  if (!attached.ok()) return {attached, device.driver->blame()};
  order.models.environment = std::move(granted).value().environment;
  auto loads = running.proxy->load(
      std::move(order.models),
      {.input_capacity = order.input_capacity, .output_capacity = order.output_capacity});
  const bool lacks_file = loads.code() == StatusCode::not_found;
  return {std::move(loads), lacks_file ? FailureCause::node_store : FailureCause::node_memory};
}

ProxyCallbacks GpuletProcesses::callbacks_for(GpuletId gpulet, std::uint32_t device) {
  ProxyCallbacks callbacks;
  callbacks.on_ready = [this, gpulet](serve::ProxyReady ready) {
    loaded(gpulet, std::move(ready));
  };
  callbacks.on_ran = [this, gpulet](serve::BatchRan ran, Bytes outputs) {
    tell_(serve::ProxyRan{gpulet, std::move(ran), std::move(outputs)});
  };
  callbacks.on_exit = [this, gpulet](const Status& reason) { ended(gpulet, reason); };
  callbacks.end = [this, gpulet, device](pid_t process) {
    return devices_[device].driver->end(gpulet, process);
  };
  return callbacks;
}

void GpuletProcesses::loaded(GpuletId gpulet, serve::ProxyReady ready) {
  const auto found = running_.find(gpulet);
  if (found != running_.end()) found->second.loading = false;
  if (ready.found.sms > 0) {
    spdlog::info("gpulet {}: was given {} of {} SMs", gpulet.value, ready.found.sms,
                 ready.found.device_sms > 0 ? std::to_string(ready.found.device_sms) : "?");
  }
  tell_(serve::ProxyLoaded{gpulet, std::move(ready.status), std::move(ready.forms), ready.found,
                           ready.device, ready.cause, std::move(ready.failed_model)});
  tell_pool();
}

void GpuletProcesses::tell_pool() {
  pool_.loading(std::any_of(running_.begin(), running_.end(),
                            [](const auto& running) { return running.second.loading; }));
}

GpuletProcesses::End GpuletProcesses::end_of(GpuletId gpulet, std::uint32_t device,
                                             const Status& reason) const {
  switch (devices_[device].driver->out_of_memory(gpulet)) {
    case partition::OutOfMemory::at_its_limit:
      // The model's doing: it would take as much elsewhere.
      return {
          reason.within("it took more memory than \"proxy_memory\" of the backend's file allows "
                        "and was ended by the kernel"),
          FailureCause::model_crash};
    case partition::OutOfMemory::with_the_node:
      return {reason.within("the node had no memory left for it, and the kernel ended it"),
              FailureCause::node_memory};
    case partition::OutOfMemory::no:
      break;
  }
  return {reason, FailureCause::unknown};
}

void GpuletProcesses::ended(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  const auto device = found->second.device;
  const auto end = found->second.end;
  const ProcessEnd process_end = found->second.proxy->process_end();
  auto [why, cause] = end_of(gpulet, device, reason);
  running_.erase(found);
  devices_[device].driver->release(gpulet);
  tell_(serve::ProxyEnded{gpulet, std::move(why), end, cause, process_end});
  tell_pool();
}

void GpuletProcesses::activate(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  auto& driver = *devices_[found->second.device].driver;
  tell_later(serve::ShareActive{gpulet, driver.activate(gpulet), driver.blame()});
}

void GpuletProcesses::adjust(GpuletId gpulet, double cores) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  tell_later(serve::CoresSet{gpulet, devices_[found->second.device].driver->adjust(gpulet, cores)});
}

void GpuletProcesses::run(serve::RunOnProxy order) {
  const auto found = running_.find(order.gpulet);
  if (found != running_.end())
    found->second.proxy->run(std::move(order.batch), std::move(order.input));
}

void GpuletProcesses::finish(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found != running_.end()) found->second.proxy->stop(kFinishTimeout);
}

void GpuletProcesses::kill(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  // Cancelled: nobody wants it any more, and it has nothing to finish.
  const bool as_wanted = reason.code() == StatusCode::cancelled;
  spdlog::log(as_wanted ? spdlog::level::info : spdlog::level::warn,
              "gpulet {}: ending it in process {}: {}", gpulet.value, found->second.proxy->pid(),
              reason.to_string());
  found->second.proxy->kill(reason);
}

std::optional<MutableBytes> GpuletProcesses::take_slot(GpuletId gpulet, std::size_t bytes) {
  const auto found = running_.find(gpulet);
  return found == running_.end() ? std::nullopt : found->second.proxy->take_slot(bytes);
}

bool GpuletProcesses::holds(GpuletId gpulet, const Bytes& input) const {
  const auto found = running_.find(gpulet);
  return found != running_.end() && found->second.proxy->holds(input);
}

std::vector<pid_t> GpuletProcesses::processes() const {
  std::vector<pid_t> processes;
  for (const auto& [gpulet, running] : running_) {
    const auto pid = running.proxy->pid();
    if (std::find(processes.begin(), processes.end(), pid) == processes.end())
      processes.push_back(pid);
  }
  return processes;
}

void GpuletProcesses::tell_later(serve::BackendEvent event) {
  net::asio::post(executor_,
                  [this, weak = std::weak_ptr(alive_), event = std::move(event)]() mutable {
                    if (!weak.expired()) tell_(std::move(event));
                  });
}

}  // namespace gpulet::backend
