#include "backend/gpulet_processes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::backend {

namespace {

// What a library throws where the machine has no memory, threads or descriptors left. Only the
// process that was to start fails, and the gpulets that run go on.
Status no_room(const std::exception& failure) {
  return {StatusCode::unavailable, std::string("cannot start a process: ") + failure.what()};
}

}  // namespace

// ---- the pool

ProxyPool::ProxyPool(const net::asio::any_io_executor& executor,
                     const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
                     ProxyOptions options)
    : executor_(executor),
      warm_proxies_(warm_proxies),
      options_(std::move(options)),
      timer_(executor) {
  for (const auto& program : programs) pool_of(program);
  fill();
}

ProxyPool::ProgramPool& ProxyPool::pool_of(const std::filesystem::path& program) {
  serve::WarmPoolOptions options;
  options.size = warm_proxies_;
  return pools_.try_emplace(program, ProgramPool{serve::WarmPool(options), {}}).first->second;
}

Result<std::unique_ptr<ProxyProcess>> ProxyPool::start_process(const std::filesystem::path& program,
                                                               bool in_background,
                                                               ProxyCallbacks callbacks) const {
  ProxyOptions options = options_;
  options.program = program;
  options.in_background = in_background;
  try {
    return ProxyProcess::start(executor_, options, std::move(callbacks));
  } catch (const std::exception& failure) {
    return no_room(failure);
  }
}

Result<ProxyPool::Taken> ProxyPool::take(const std::filesystem::path& program,
                                         ProxyCallbacks callbacks) {
  auto& pool = pool_of(program);
  if (!pool.warm.empty()) {
    auto warm = std::move(pool.warm.front());
    pool.warm.erase(pool.warm.begin());
    pool.plan.taken(warm.idle);
    warm.process->set_callbacks(std::move(callbacks));
    return Taken{std::move(warm.process), "warm"};
  }
  auto started = start_process(program, false, std::move(callbacks));
  if (!started.ok()) return started.status();
  return Taken{std::move(started).value(), "new"};
}

void ProxyPool::set_loading(bool any) {
  for (auto& [program, pool] : pools_) pool.plan.loading(any, net::now());
  fill();
}

void ProxyPool::close() {
  closed_ = true;
  timer_.cancel();
  for (auto& [program, pool] : pools_) pool.warm.clear();
}

std::vector<pid_t> ProxyPool::idle_processes() const {
  std::vector<pid_t> processes;
  for (const auto& [program, pool] : pools_) {
    for (const auto& warm : pool.warm) {
      if (warm.idle) processes.push_back(warm.process->pid());
    }
  }
  return processes;
}

void ProxyPool::fill() {
  if (closed_) return;
  for (auto& [program, pool] : pools_) {
    if (pool.plan.should_start(net::now())) start_one(program, pool);
  }
  set_timer();
}

void ProxyPool::start_one(const std::filesystem::path& program, ProgramPool& pool) {
  pool.plan.started();
  // The callbacks identify the process by its id. It is set below, before any callback runs.
  const auto process_id = std::make_shared<pid_t>(0);
  ProxyCallbacks callbacks;
  callbacks.on_idle = [this, program, process_id] { on_idle(program, *process_id); };
  callbacks.on_exit = [this, program, process_id](const Status& reason) {
    on_exit(program, *process_id, reason);
  };
  auto started = start_process(program, true, std::move(callbacks));
  if (!started.ok()) {
    spdlog::warn("warm proxy: {}", started.status().to_string());
    pool.plan.died(false, net::now());
    return;
  }
  *process_id = started.value()->pid();
  pool.warm.push_back({std::move(started).value(), false});
}

void ProxyPool::on_idle(const std::filesystem::path& program, pid_t process) {
  auto& pool = pools_.at(program);
  for (auto& warm : pool.warm) {
    if (warm.process->pid() != process) continue;
    warm.idle = true;
    pool.plan.idle();
    spdlog::info("warm proxy: process {} of {} is ready", process, program.filename().string());
  }
  fill();
}

void ProxyPool::on_exit(const std::filesystem::path& program, pid_t process, const Status& reason) {
  auto& pool = pools_.at(program);
  const auto found = std::find_if(pool.warm.begin(), pool.warm.end(), [process](const Warm& warm) {
    return warm.process->pid() == process;
  });
  if (found == pool.warm.end()) return;
  const auto why = reason.ok() ? "it exited" : reason.message();
  spdlog::warn("warm proxy: process {} has ended: {}", process, why);
  pool.plan.died(found->idle, net::now());
  pool.warm.erase(found);
  fill();
}

void ProxyPool::set_timer() {
  auto next = kNever;
  for (const auto& [program, pool] : pools_) next = std::min(next, pool.plan.next_check());
  timer_.cancel();
  if (next == kNever) return;
  timer_.set(next, [this] { fill(); });
}

// ---- construction

namespace {

// For the last batches of a retiring gpulet; the frontend drains it in less.
constexpr Duration kFinishTimeout = std::chrono::seconds(30);

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

}  // namespace

GpuletProcesses::GpuletProcesses(const net::asio::any_io_executor& executor,
                                 std::vector<HostedDevice> devices, std::uint32_t warm_proxies,
                                 std::optional<ProxyUser> proxy_user, ProxyConfinement confinement,
                                 OnEvent on_event)
    : executor_(executor),
      devices_(std::move(devices)),
      on_event_(std::move(on_event)),
      proxy_user_(std::move(proxy_user)),
      confinement_(std::move(confinement)),
      pool_(executor, programs_of(devices_), warm_proxies, options_of({}, false)) {
  for (std::uint32_t device = 0; device < devices_.size() && warm_proxies > 0; ++device) {
    if (!changes_in_place(device)) continue;
    // Its first gpulet tries again and reports a failure.
    if (const auto started = start_device(device, true); !started.ok())
      spdlog::warn("device {}: {}", device, started.to_string());
  }
}

// Ends the processes before it releases their shares. Kills all of them first, because a driver may
// take time to end one.
GpuletProcesses::~GpuletProcesses() {
  for (auto& [gpulet, running] : running_)
    running.proxy->kill({StatusCode::cancelled, "its backend ends"});
  device_processes_.clear();
  for (auto& [gpulet, running] : running_) {
    running.proxy.reset();
    devices_[running.device].driver->release(gpulet);
  }
}

ProxyOptions GpuletProcesses::options_of(const std::filesystem::path& program, bool in_background) {
  ProxyOptions options{program, in_background, proxy_user_, {}, confinement_};
  options.on_output = [this, watch = alive_.watch()](pid_t process, const std::string& line) {
    if (watch.alive()) log_output(process, line);
  };
  return options;
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

// ---- the processes of devices

bool GpuletProcesses::changes_in_place(std::uint32_t device) const {
  return has_one_process(devices_[device]);
}

Status GpuletProcesses::start_device(std::uint32_t device, bool in_background) {
  auto started =
      DeviceProcess::start(executor_, options_of(devices_[device].proxy_program, in_background),
                           [this, device](const Status& how) { device_ended(device, how); });
  if (!started.ok()) return started.status();
  spdlog::info("device {}: process {} serves all its gpulets", device, started.value()->pid());
  device_processes_[device] = std::move(started).value();
  return {};
}

// Called before the on_exit of the workers, which use the device health that is set here.
void GpuletProcesses::device_ended(std::uint32_t device, const Status& how) {
  const auto ended = device_processes_.extract(device);
  spdlog::warn("device {}: process {} has ended: {}", device, ended.mapped()->pid(),
               how.ok() ? "it exited" : how.to_string());
  const auto loads = [device](const auto& entry) {
    return entry.second.device == device && entry.second.loading;
  };
  const bool one_loads = std::count_if(running_.begin(), running_.end(), loads) == 1;
  for (auto& entry : running_) {
    const bool at_fault = one_loads && loads(entry);
    if (entry.second.device == device && !at_fault)
      entry.second.device_health = partition::DeviceHealth::not_ready;
  }
}

// A file that cannot be read is no reason for another program: loading it fails later.
const std::filesystem::path& GpuletProcesses::program_for(std::uint32_t device,
                                                          const LoadModels& models) const {
  const HostedDevice& host = devices_[device];
  if (host.onnx_program.empty()) return host.proxy_program;
  const auto is_onnx = [](const LoadModel& model) {
    const auto format = config::format_of(model.file);
    return format.ok() && format.value() == config::FileFormat::onnx;
  };
  return std::all_of(models.models.begin(), models.models.end(), is_onnx) ? host.onnx_program
                                                                          : host.proxy_program;
}

// A process whose environment must be complete when the program starts cannot come from the pool.
Result<ProxyPool::Taken> GpuletProcesses::take_proxy(std::uint32_t device,
                                                     const partition::Grant& grant,
                                                     const LoadModels& models,
                                                     ProxyCallbacks callbacks) {
  if (grant.read_at_start) {
    ProxyOptions options = options_of(program_for(device, models), false);
    options.environment = grant.environment;
    auto started = ProxyProcess::start(executor_, options, std::move(callbacks));
    if (!started.ok()) return started.status();
    return ProxyPool::Taken{std::move(started).value(), "its own"};
  }
  if (!changes_in_place(device))
    return pool_.take(program_for(device, models), std::move(callbacks));
  const bool exists = device_processes_.contains(device);
  if (!exists) {
    if (auto started = start_device(device, false); !started.ok()) return started;
  }
  auto worker = device_processes_.at(device)->add_worker(std::move(callbacks));
  if (!worker.ok()) return worker.status();
  return ProxyPool::Taken{std::move(worker).value(), exists ? "in" : "in new"};
}

partition::DeviceHealth GpuletProcesses::health_of(std::uint32_t device) const {
  const auto process = device_processes_.find(device);
  const bool ends = process != device_processes_.end() && !process->second->accepts_workers();
  const bool later = ends || !devices_[device].driver->ready();
  return later ? partition::DeviceHealth::not_ready : partition::DeviceHealth::works;
}

// ---- gpulets

void GpuletProcesses::start(serve::StartGpulet order) {
  const auto gpulet = order.gpulet;
  Started started;
  try {
    started = start_process(order);
  } catch (const std::exception& failure) {
    started = {no_room(failure), FailureCause::node_spawn};
  }
  if (started.status.ok()) {
    post_event(serve::ProxyStarted{gpulet});
  } else {
    running_.erase(gpulet);  // ends the process before its share is released
    devices_[order.device].driver->release(gpulet);
    post_event(serve::ProxyEnded{gpulet, started.status, health_of(order.device), started.cause});
  }
  update_pool();
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
  auto taken = take_proxy(order.device, granted.value(), order.models,
                          callbacks_for(order.gpulet, order.device));
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
  callbacks.on_ready = [this, gpulet](ProxyReady ready) { loaded(gpulet, std::move(ready)); };
  callbacks.on_ran = [this, gpulet](BatchRan ran, Bytes outputs) {
    on_event_(serve::BatchCompleted{gpulet, std::move(ran), std::move(outputs)});
  };
  callbacks.on_exit = [this, gpulet](const Status& reason) { ended(gpulet, reason); };
  callbacks.end = [this, gpulet, device](pid_t process) {
    return devices_[device].driver->end(gpulet, process);
  };
  return callbacks;
}

void GpuletProcesses::loaded(GpuletId gpulet, ProxyReady ready) {
  const auto found = running_.find(gpulet);
  if (found != running_.end()) found->second.loading = false;
  if (ready.found.sms > 0) {
    spdlog::info("gpulet {}: was given {} of {} SMs", gpulet.value, ready.found.sms,
                 ready.found.device_sms > 0 ? std::to_string(ready.found.device_sms) : "?");
  }
  on_event_(serve::ProxyLoaded{gpulet, std::move(ready.status), std::move(ready.variants),
                               ready.found, ready.device, ready.cause,
                               std::move(ready.failed_model), ready.load_stages, ready.condition});
  update_pool();
}

void GpuletProcesses::update_pool() {
  pool_.set_loading(std::any_of(running_.begin(), running_.end(),
                                [](const auto& running) { return running.second.loading; }));
}

GpuletProcesses::End GpuletProcesses::end_of(GpuletId gpulet, std::uint32_t device,
                                             const Status& reason) const {
  switch (devices_[device].driver->out_of_memory(gpulet)) {
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
  const auto device = found->second.device;
  const auto device_health = found->second.device_health;
  const ProcessEnd process_end = found->second.proxy->process_end();
  auto [why, cause] = end_of(gpulet, device, reason);
  running_.erase(found);
  devices_[device].driver->release(gpulet);
  on_event_(serve::ProxyEnded{gpulet, std::move(why), device_health, cause, process_end});
  update_pool();
}

void GpuletProcesses::activate(GpuletId gpulet) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  auto& driver = *devices_[found->second.device].driver;
  post_event(serve::ShareActive{gpulet, driver.activate(gpulet), driver.blame()});
}

void GpuletProcesses::adjust(GpuletId gpulet, double cores) {
  const auto found = running_.find(gpulet);
  if (found == running_.end()) return;
  post_event(serve::CoresSet{gpulet, devices_[found->second.device].driver->adjust(gpulet, cores)});
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

void GpuletProcesses::post_event(serve::BackendEvent event) {
  net::asio::post(executor_, [this, watch = alive_.watch(), event = std::move(event)]() mutable {
    if (watch.alive()) on_event_(std::move(event));
  });
}

}  // namespace gpulet::backend
