#include "backend/process_starter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/config/model_config.h"

namespace gpulet::backend {
namespace {

bool has_one_process(const HostedDevice& device) {
  return device.driver->traits().change == partition::ChangeOfSize::in_place;
}

// The programs whose processes serve one gpulet each.
std::set<std::filesystem::path> programs_of(const std::vector<HostedDevice>& devices) {
  std::set<std::filesystem::path> programs;
  for (const auto& device : devices) {
    if (!has_one_process(device)) programs.insert(device.proxy_program);
  }
  return programs;
}

partition::Claim claim_of(const node::StartGpulet& order) {
  return {.gpulet = order.gpulet,
          .share = order.size,
          .memory_bytes = static_cast<std::uint64_t>(order.memory_mb * kBytesPerMegabyte),
          .instance = order.instance,
          .adjustable = order.adjustable};
}

}  // namespace

ProcessStarter::ProcessStarter(const net::asio::any_io_executor& executor,
                               std::vector<HostedDevice> devices, std::uint32_t warm_proxies,
                               std::optional<ProxyUser> proxy_user, ProxyConfinement confinement,
                               Hooks hooks)
    : executor_(executor),
      devices_(std::move(devices)),
      proxy_user_(std::move(proxy_user)),
      confinement_(std::move(confinement)),
      hooks_(std::move(hooks)),
      pool_(executor, programs_of(devices_), warm_proxies, options_of({}, false)) {
  for (std::uint32_t device = 0; device < devices_.size() && warm_proxies > 0; ++device) {
    if (!changes_in_place(device)) continue;
    // Its first gpulet tries again and reports a failure.
    if (const auto started = start_device(device, true); !started.ok())
      spdlog::warn("device {}: {}", device, started.to_string());
  }
}

ProcessStarter::Started ProcessStarter::start(const node::StartGpulet& order,
                                              ProxyCallbacks callbacks) {
  Started started;
  try {
    started = start_process(order, std::move(callbacks));
  } catch (const std::exception& failure) {
    started = {.status = lack_of_room(failure), .cause = FailureCause::node_spawn};
  }
  if (!started.status.ok()) {
    started.proxy.reset();  // ends the process before its share is released
    driver(order.device).release(order.gpulet);
  }
  return started;
}

ProcessStarter::Started ProcessStarter::start_process(const node::StartGpulet& order,
                                                      ProxyCallbacks callbacks) {
  partition::PartitionDriver& device = driver(order.device);
  auto granted = device.grant(claim_of(order));
  if (!granted.ok()) return {.status = granted.status(), .cause = device.blame(), .refused = true};
  auto taken = take_proxy(order.device, granted.value(), order.models, std::move(callbacks));
  if (!taken.ok()) return {.status = taken.status(), .cause = FailureCause::node_spawn};
  Started started{.proxy = std::move(taken.value().proxy), .kind = taken.value().kind};
  if (Status attached = device.attach(order.gpulet, started.proxy->pid()); !attached.ok()) {
    started.status = std::move(attached);
    started.cause = device.blame();
    return started;
  }
  LoadModels models = order.models;
  models.environment = std::move(granted).value().environment;
  started.status = started.proxy->load(
      std::move(models),
      {.input_capacity = order.input_capacity, .output_capacity = order.output_capacity});
  const bool lacks_file = started.status.code() == StatusCode::not_found;
  started.cause = lacks_file ? FailureCause::node_store : FailureCause::node_memory;
  return started;
}

bool ProcessStarter::changes_in_place(std::uint32_t device) const {
  return has_one_process(devices_[device]);
}

partition::DeviceHealth ProcessStarter::health_of(std::uint32_t device) const {
  const auto process = device_processes_.find(device);
  const bool ends = process != device_processes_.end() && !process->second->accepts_workers();
  const bool later = ends || !devices_[device].driver->ready();
  return later ? partition::DeviceHealth::not_ready : partition::DeviceHealth::works;
}

ProxyOptions ProcessStarter::options_of(const std::filesystem::path& program, bool in_background) {
  ProxyOptions options{program, in_background, proxy_user_, {}, confinement_};
  options.on_output = [this, watch = alive_.watch()](pid_t process, const std::string& line) {
    if (watch.alive()) hooks_.on_output(process, line);
  };
  return options;
}

Status ProcessStarter::start_device(std::uint32_t device, bool in_background) {
  GPULET_TRY(auto started, DeviceProcess::start(
                               executor_, options_of(devices_[device].proxy_program, in_background),
                               [this, device](const Status& how) { device_ended(device, how); }));
  spdlog::info("device {}: process {} serves all its gpulets", device, started->pid());
  device_processes_[device] = std::move(started);
  return {};
}

// Called before the on_exit of the workers.
void ProcessStarter::device_ended(std::uint32_t device, const Status& how) {
  const auto ended = device_processes_.extract(device);
  spdlog::warn("device {}: process {} has ended: {}", device, ended.mapped()->pid(),
               how.ok() ? "it exited" : how.to_string());
  hooks_.on_device_ended(device);
}

// A file that cannot be read is no reason for another program: loading it fails later.
const std::filesystem::path& ProcessStarter::program_for(std::uint32_t device,
                                                         const LoadModels& models) const {
  const HostedDevice& host = devices_[device];
  if (host.onnx_program.empty()) return host.proxy_program;
  const auto is_onnx = [](const ModelToLoad& model) {
    const auto format = config::format_of(model.file);
    return format.ok() && format.value() == config::FileFormat::onnx;
  };
  return std::all_of(models.models.begin(), models.models.end(), is_onnx) ? host.onnx_program
                                                                          : host.proxy_program;
}

// A process whose environment must be complete when the program starts cannot come from the pool.
Result<ProxyPool::Taken> ProcessStarter::take_proxy(std::uint32_t device,
                                                    const partition::Grant& grant,
                                                    const LoadModels& models,
                                                    ProxyCallbacks callbacks) {
  if (grant.read_at_start) {
    ProxyOptions options = options_of(program_for(device, models), false);
    options.environment = grant.environment;
    GPULET_TRY(auto started, ProxyProcess::start(executor_, options, std::move(callbacks)));
    return ProxyPool::Taken{std::move(started), "its own"};
  }
  if (!changes_in_place(device))
    return pool_.take(program_for(device, models), std::move(callbacks));
  const bool exists = device_processes_.contains(device);
  if (!exists) {
    if (auto started = start_device(device, false); !started.ok()) return started;
  }
  GPULET_TRY(auto worker, device_processes_.at(device)->add_worker(std::move(callbacks)));
  return ProxyPool::Taken{std::move(worker), exists ? "in" : "in new"};
}

}  // namespace gpulet::backend
