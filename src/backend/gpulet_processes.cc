#include "backend/gpulet_processes.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace gpulet::backend {
namespace {

// For a retiring gpulet's last batches; the frontend drains in less.
constexpr Duration kFinishTimeout = std::chrono::seconds(30);

}  // namespace

GpuletProcesses::GpuletProcesses(const net::asio::any_io_executor& executor,
                                 std::vector<HostedDevice> devices, Tell tell)
    : executor_(executor), devices_(std::move(devices)), tell_(std::move(tell)) {}

// Processes first: a share is released when nobody is left under it.
GpuletProcesses::~GpuletProcesses() {
  for (auto& [gpulet, running] : running_) {
    running.process.reset();
    devices_[running.device].driver->release(gpulet);
  }
}

void GpuletProcesses::start(serve::StartGpulet order) {
  const auto gpulet = order.gpulet;
  auto started = start_process(order);
  if (!started.ok()) {
    running_.erase(gpulet);  // first: a share is released when nobody is left under it
    devices_[order.device].driver->release(gpulet);
    tell_later(serve::ProxyEnded{gpulet, std::move(started)});
    return;
  }
  auto& running = running_.at(gpulet);
  spdlog::info("gpulet {}: {} % of device {}, process {}", gpulet.value, order.size.percent,
               order.device, running.process->pid());
  tell_later(serve::ProxyStarted{gpulet});
  running.process->load(std::move(order.models));
}

Status GpuletProcesses::start_process(const serve::StartGpulet& order) {
  auto& device = devices_[order.device];
  auto granted = device.driver->grant(order.gpulet, order.size);
  if (!granted.ok()) return granted.status();
  ProxyOptions options;
  options.program = device.proxy_program;
  options.environment = std::move(granted).value().environment;
  options.input_capacity = order.input_capacity;
  options.output_capacity = order.output_capacity;
  auto process = ProxyProcess::start(executor_, options, callbacks_for(order.gpulet));
  if (!process.ok()) return process.status();
  const auto pid = process.value()->pid();
  running_.insert_or_assign(order.gpulet, Running{order.device, std::move(process).value()});
  return device.driver->attach(order.gpulet, pid);
}

ProxyCallbacks GpuletProcesses::callbacks_for(GpuletId gpulet) {
  ProxyCallbacks callbacks;
  callbacks.on_ready = [this, gpulet](const serve::ProxyReady& ready) {
    tell_(serve::ProxyLoaded{gpulet, ready.status});
  };
  callbacks.on_ran = [this, gpulet](serve::BatchRan ran, Bytes outputs) {
    tell_(serve::ProxyRan{gpulet, std::move(ran), std::move(outputs)});
  };
  callbacks.on_exit = [this, gpulet](const Status& reason) { ended(gpulet, reason); };
  return callbacks;
}

void GpuletProcesses::ended(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  const auto device = found->second.device;
  running_.erase(found);
  devices_[device].driver->release(gpulet);
  tell_(serve::ProxyEnded{gpulet, reason});
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
  spdlog::warn("gpulet {}: killing process {}: {}", gpulet.value, found->second.process->pid(),
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
