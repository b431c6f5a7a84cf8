#include "backend/gpulet_processes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::backend {

// ---- construction

namespace {

// For the last batches of a retiring gpulet; the frontend drains it in less.
constexpr Duration kFinishTimeout = std::chrono::seconds(30);

node::ProxyLoaded loaded_event(GpuletId gpulet, ProxyReady ready) {
  return {gpulet,
          std::move(ready.status),
          std::move(ready.variants),
          ready.found,
          ready.device,
          ready.cause,
          std::move(ready.failed_model),
          ready.load_stages,
          ready.condition};
}

// REQUIRES: the memory has as many bytes as the pieces.
void copy_into(const MutableBytes& memory, const std::vector<Bytes>& pieces) {
  std::byte* to = memory.view().data();
  for (const Bytes& piece : pieces) to = std::copy_n(piece.view().data(), piece.size(), to);
}

}  // namespace

GpuletProcesses::GpuletProcesses(const net::asio::any_io_executor& executor,
                                 std::vector<HostedDevice> devices, std::uint32_t warm_proxies,
                                 ParkingOptions parking, std::optional<ProxyUser> proxy_user,
                                 ProxyConfinement confinement, OnEvent on_event)
    : executor_(executor),
      on_event_(std::move(on_event)),
      starter_(executor, std::move(devices), warm_proxies, std::move(proxy_user),
               std::move(confinement),
               {[this](pid_t process, const std::string& line) { log_output(process, line); },
                [this](std::uint32_t device) { device_ended(device); }}),
      parked_(
          executor, starter_, parking,
          [this](const ParkedProcesses::Visit& visit) {
            for (const auto& [gpulet, running] : running_) visit(running.order);
          },
          [this] { start_waiting(); }) {}

// Ends the processes before it releases their shares. Kills all of them first, because a driver may
// take time to end one.
GpuletProcesses::~GpuletProcesses() {
  for (auto& [gpulet, running] : running_)
    running.proxy->kill({StatusCode::cancelled, "its backend ends"});
  starter_.end_devices();
  for (auto& [gpulet, running] : running_) {
    running.proxy.reset();
    starter_.driver(running.order.device).release(running.grant);
  }
}

// The prefix tells the text of a model from the backend's own lines.
void GpuletProcesses::log_output(pid_t process, const std::string& line) const {
  std::string gpulets;
  for (const auto& [gpulet, running] : running_) {
    if (running.proxy->pid() != process) continue;
    gpulets += gpulets.empty() ? "gpulet " : ", ";
    gpulets += std::to_string(gpulet.value);
  }
  if (gpulets.empty()) gpulets = "no gpulet";
  spdlog::info("{}: output of process {}: {}", gpulets, process, line);
}

// ---- gpulets

void GpuletProcesses::start(node::StartGpulet order) {
  if (reuse(order)) return;
  if (parked_.make_room(order)) {
    start_new(std::move(order));
  } else {
    waiting_.push_back(std::move(order));  // start_waiting() continues
  }
}

void GpuletProcesses::start_new(node::StartGpulet order) {
  const GpuletId gpulet = order.gpulet;
  const std::uint32_t device = order.device;
  ProcessStarter::Started started = starter_.start(order, callbacks_for(gpulet, device, gpulet));
  const bool may_help = started.refused && starter_.driver(device).ready();
  if (may_help && parked_.end_one(device)) {
    waiting_.push_back(std::move(order));
    return;
  }
  if (started.status.ok()) {
    spdlog::info("gpulet {}: {} % of device {}, {} process {}", gpulet.value, order.size.percent,
                 device, started.kind, started.proxy->pid());
    running_.insert_or_assign(gpulet, Running{std::move(started.proxy), gpulet, std::move(order)});
    post_event(node::ProxyStarted{gpulet});
  } else {
    post_event(node::ProxyEnded{gpulet, started.status, starter_.health_of(device), started.cause});
  }
  gpulets_changed();
}

// A process that was parked, if one can serve the gpulet.
bool GpuletProcesses::reuse(const node::StartGpulet& order) {
  std::optional<ParkedProcess> parked = parked_.take(order);
  if (!parked) return false;
  const GpuletId gpulet = order.gpulet;
  spdlog::info("gpulet {}: {} % of device {}, parked process {}", gpulet.value, order.size.percent,
               order.device, parked->proxy->pid());
  parked->proxy->set_callbacks(callbacks_for(gpulet, order.device, parked->grant));
  parked->order.gpulet = gpulet;
  parked->ready.load_stages = {};
  ProxyReady ready = parked->ready;
  ready.variants = variants_for(order.models.models, parked->order.models.models, ready.variants);
  post_event(node::ProxyStarted{gpulet});
  post_event(loaded_event(gpulet, std::move(ready)));
  Running running{std::move(parked->proxy), parked->grant, std::move(parked->order)};
  running.ready = std::move(parked->ready);
  running.loading = false;
  running_.insert_or_assign(gpulet, std::move(running));
  gpulets_changed();
  return true;
}

// A parked process has ended.
void GpuletProcesses::start_waiting() {
  for (node::StartGpulet& order : std::exchange(waiting_, {})) start(std::move(order));
}

// Called before the on_exit of the workers, which use the device health that is set here.
void GpuletProcesses::device_ended(std::uint32_t device) {
  const auto loads = [device](const auto& entry) {
    return entry.second.order.device == device && entry.second.loading;
  };
  const bool one_loads = std::count_if(running_.begin(), running_.end(), loads) == 1;
  for (auto& entry : running_) {
    const bool at_fault = one_loads && loads(entry);
    if (entry.second.order.device == device && !at_fault)
      entry.second.device_health = partition::DeviceHealth::not_ready;
  }
}

ProxyCallbacks GpuletProcesses::callbacks_for(GpuletId gpulet, std::uint32_t device,
                                              GpuletId grant) {
  ProxyCallbacks callbacks;
  callbacks.on_ready = [this, gpulet](ProxyReady ready) { loaded(gpulet, std::move(ready)); };
  callbacks.on_ran = [this, gpulet](BatchRan ran, Bytes outputs) {
    ran_batch(gpulet, ran);
    on_event_(node::BatchCompleted{gpulet, std::move(ran), std::move(outputs)});
  };
  callbacks.on_exit = [this, gpulet](const Status& reason) { ended(gpulet, reason); };
  callbacks.end = [this, device, grant](pid_t process) {
    return starter_.driver(device).end(grant, process);
  };
  return callbacks;
}

void GpuletProcesses::loaded(GpuletId gpulet, ProxyReady ready) {
  const auto found = running_.find(gpulet);
  if (found != running_.end()) {
    found->second.loading = false;
    found->second.ready = ready;
    // It may have lacked the memory that they hold.
    if (!ready.status.ok())
      parked_.end_all_of(found->second.order.device,
                         {StatusCode::cancelled, "a gpulet of its device could not load"});
  }
  if (ready.found.sms > 0) {
    spdlog::info("gpulet {}: was given {} of {} SMs", gpulet.value, ready.found.sms,
                 ready.found.device_sms > 0 ? std::to_string(ready.found.device_sms) : "?");
  }
  on_event_(loaded_event(gpulet, std::move(ready)));
  gpulets_changed();
}

void GpuletProcesses::ran_batch(GpuletId gpulet, const BatchRan& ran) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  --found->second.in_flight;
  if (ran.condition) found->second.ready.condition = *ran.condition;
}

void GpuletProcesses::gpulets_changed() {
  const bool loading = std::any_of(running_.begin(), running_.end(),
                                   [](const auto& running) { return running.second.loading; });
  starter_.pool().set_loading(loading);
  parked_.gpulets_changed(loading);
}

GpuletProcesses::End GpuletProcesses::end_of(const Running& running, const Status& reason) const {
  switch (starter_.driver(running.order.device).out_of_memory(running.grant)) {
    case partition::OutOfMemory::at_its_limit:
      // The model is at fault: it would need as much memory elsewhere.
      return {
          reason.within("the kernel killed it because it used more memory than \"proxy_memory\" of "
                        "the backend's file allows"),
          FailureCause::model_crash};
    case partition::OutOfMemory::with_the_node:
      return {reason.within("the kernel killed it because the node ran out of memory"),
              FailureCause::node_memory};
    case partition::OutOfMemory::no:
      break;
  }
  return {reason, FailureCause::unknown};
}

void GpuletProcesses::ended(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  const std::uint32_t device = found->second.order.device;
  const auto device_health = found->second.device_health;
  const ProcessEnd process_end = found->second.proxy->process_end();
  const GpuletId grant = found->second.grant;
  auto [why, cause] = end_of(found->second, reason);
  running_.erase(found);
  starter_.driver(device).release(grant);
  // After a fault that reaches the device, their next batch would fail.
  const bool faulted = !reason.ok() && reason.code() != StatusCode::cancelled;
  if (faulted && starter_.driver(device).traits().fault == partition::FaultReach::device)
    parked_.end_all_of(device, {StatusCode::cancelled, "its device had a fault"});
  on_event_(node::ProxyEnded{gpulet, std::move(why), device_health, cause, process_end});
  gpulets_changed();
}

void GpuletProcesses::activate(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  auto& driver = starter_.driver(found->second.order.device);
  post_event(node::ShareActive{gpulet, driver.activate(found->second.grant), driver.blame()});
}

void GpuletProcesses::adjust(GpuletId gpulet, double cores) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  auto& driver = starter_.driver(found->second.order.device);
  post_event(node::CoresSet{gpulet, driver.adjust(found->second.grant, cores)});
}

void GpuletProcesses::run(node::RunOnProxy order) {
  const auto found = running_.find(order.gpulet);
  if (found == running_.end()) return;
  Running& running = found->second;
  // A batch that waited for its inputs may have got memory of an earlier process.
  if (order.pieces.empty() && !running.proxy->holds(order.input))
    order.pieces = {std::move(order.input)};
  if (!order.pieces.empty()) {
    const auto slot = running.proxy->take_slot(order.batch.input_bytes);
    if (!slot) {
      BatchRan refused;
      refused.id = order.batch.id;
      refused.status = {
          StatusCode::overloaded,
          fmt::format("gpulet {} has no memory left for another batch", order.gpulet.value)};
      return post_event(node::BatchCompleted{order.gpulet, std::move(refused), {}});
    }
    copy_into(*slot, order.pieces);
    order.input = slot->freeze();
  }
  ++running.in_flight;
  running.proxy->run(std::move(order.batch), std::move(order.input));
}

// Later, because a process cannot be parked in a callback of its proxy.
void GpuletProcesses::finish(GpuletId gpulet) {
  net::asio::post(executor_, [this, watch = alive_.watch(), gpulet] {
    if (watch.alive()) park_or_stop(gpulet);
  });
}

void GpuletProcesses::park_or_stop(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  Running& running = found->second;
  if (running.in_flight > 0 || !parked_.would_park(running.order)) {
    running.proxy->stop(kFinishTimeout);
    return;
  }
  spdlog::info("gpulet {}: its process {} is parked", gpulet.value, running.proxy->pid());
  ParkedProcess process{std::move(running.order), running.grant, std::move(running.ready),
                        std::move(running.proxy)};
  running_.erase(found);
  parked_.park(std::move(process));
  on_event_(node::ProxyEnded{gpulet, Status()});
  gpulets_changed();
}

void GpuletProcesses::kill(GpuletId gpulet, const Status& reason) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) {
    const auto waits = [gpulet](const node::StartGpulet& one) { return one.gpulet == gpulet; };
    if (std::erase_if(waiting_, waits) > 0) post_event(node::ProxyEnded{gpulet, reason});
    return;
  }
  // Cancelled: it is no longer needed.
  const bool expected = reason.code() == StatusCode::cancelled;
  spdlog::log(expected ? spdlog::level::info : spdlog::level::warn,
              "gpulet {}: ending it in process {}: {}", gpulet.value, found->second.proxy->pid(),
              reason.to_string());
  found->second.proxy->kill(reason);
}

std::optional<MutableBytes> GpuletProcesses::take_slot(GpuletId gpulet, std::size_t bytes) {
  const auto found = running_.find(gpulet);
  return found == running_.end() ? std::nullopt : found->second.proxy->take_slot(bytes);
}

std::optional<MutableBytes> GpuletProcesses::take_zeros(GpuletId gpulet, std::size_t bytes) {
  const auto found = running_.find(gpulet);
  return found == running_.end() ? std::nullopt : found->second.proxy->take_zeros(bytes);
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

void GpuletProcesses::close_pool() {
  starter_.pool().close();
  parked_.close();
}

void GpuletProcesses::post_event(node::BackendEvent event) {
  net::asio::post(executor_, [this, watch = alive_.watch(), event = std::move(event)]() mutable {
    if (watch.alive()) on_event_(std::move(event));
  });
}

}  // namespace gpulet::backend
