#include "backend/gpulet_processes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace gpulet::backend {
namespace {

// For a retiring gpulet's last batches; the frontend drains in less.
constexpr Duration kFinishTimeout = std::chrono::seconds(30);

std::set<std::filesystem::path> programs_of(const std::vector<HostedDevice>& devices) {
  std::set<std::filesystem::path> programs;
  for (const auto& device : devices) programs.insert(device.proxy_program);
  return programs;
}

}  // namespace

GpuletProcesses::GpuletProcesses(const net::asio::any_io_executor& executor,
                                 std::vector<HostedDevice> devices, std::uint32_t warm_proxies,
                                 std::optional<ProxyUser> proxy_user, Tell tell)
    : executor_(executor),
      devices_(std::move(devices)),
      tell_(std::move(tell)),
      pool_(executor, programs_of(devices_), warm_proxies, std::move(proxy_user)) {}

// Processes first: a share is released when nobody is left under it. A driver that takes its time
// to end one ends them all at once.
GpuletProcesses::~GpuletProcesses() {
  for (auto& [gpulet, running] : running_)
    running.process->kill({StatusCode::cancelled, "its backend ends"});
  for (auto& [gpulet, running] : running_) {
    running.process.reset();
    devices_[running.device].driver->release(gpulet);
  }
}

void GpuletProcesses::start(serve::StartGpulet order) {
  const auto gpulet = order.gpulet;
  auto started = start_process(order);
  if (started.ok()) {
    tell_later(serve::ProxyStarted{gpulet});
  } else {
    running_.erase(gpulet);  // first: a share is released when nobody is left under it
    auto& driver = *devices_[order.device].driver;
    driver.release(gpulet);
    const auto health =
        driver.ready() ? partition::DeviceHealth::works : partition::DeviceHealth::not_ready;
    tell_later(serve::ProxyEnded{gpulet, std::move(started), health});
  }
  tell_pool();
}

Status GpuletProcesses::start_process(serve::StartGpulet& order) {
  auto& device = devices_[order.device];
  auto granted = device.driver->grant(order.gpulet, order.size);
  if (!granted.ok()) return granted.status();
  auto taken = pool_.take(device.proxy_program, callbacks_for(order.gpulet, order.device));
  if (!taken.ok()) return taken.status();
  const auto pid = taken.value().process->pid();
  spdlog::info("gpulet {}: {} % of device {}, {} process {}", order.gpulet.value,
               order.size.percent, order.device, taken.value().was_warm ? "warm" : "new", pid);
  auto& running = running_[order.gpulet];
  running = Running{order.device, std::move(taken.value().process)};
  auto attached = device.driver->attach(order.gpulet, pid);
  if (!attached.ok()) return attached;
  order.models.environment = std::move(granted).value().environment;
  return running.process->load(std::move(order.models), {.input_capacity = order.input_capacity,
                                                         .output_capacity = order.output_capacity});
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
                           ready.device});
  tell_pool();
}

void GpuletProcesses::tell_pool() {
  pool_.loading(std::any_of(running_.begin(), running_.end(),
                            [](const auto& running) { return running.second.loading; }));
}

void GpuletProcesses::ended(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  const auto device = found->second.device;
  running_.erase(found);
  devices_[device].driver->release(gpulet);
  tell_(serve::ProxyEnded{gpulet, reason});
  tell_pool();
}

void GpuletProcesses::activate(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  tell_later(serve::ShareActive{gpulet, devices_[found->second.device].driver->activate(gpulet)});
}

void GpuletProcesses::run(serve::RunOnProxy order) {
  const auto found = running_.find(order.gpulet);
  if (found != running_.end())
    found->second.process->run(std::move(order.batch), std::move(order.input));
}

void GpuletProcesses::finish(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found != running_.end()) found->second.process->stop(kFinishTimeout);
}

void GpuletProcesses::kill(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  // Cancelled: nobody wants it any more, and it has nothing to finish.
  const bool as_wanted = reason.code() == StatusCode::cancelled;
  spdlog::log(as_wanted ? spdlog::level::info : spdlog::level::warn,
              "gpulet {}: ending process {}: {}", gpulet.value, found->second.process->pid(),
              reason.to_string());
  found->second.process->kill(reason);
}

std::optional<MutableBytes> GpuletProcesses::take_slot(GpuletId gpulet, std::size_t bytes) {
  const auto found = running_.find(gpulet);
  return found == running_.end() ? std::nullopt : found->second.process->take_slot(bytes);
}

bool GpuletProcesses::holds(GpuletId gpulet, const Bytes& input) const {
  const auto found = running_.find(gpulet);
  return found != running_.end() && found->second.process->holds(input);
}

std::vector<pid_t> GpuletProcesses::processes() const {
  std::vector<pid_t> processes;
  for (const auto& [gpulet, running] : running_) processes.push_back(running.process->pid());
  return processes;
}

void GpuletProcesses::tell_later(serve::BackendEvent event) {
  net::asio::post(executor_,
                  [this, weak = std::weak_ptr(alive_), event = std::move(event)]() mutable {
                    if (!weak.expired()) tell_(std::move(event));
                  });
}

}  // namespace gpulet::backend
