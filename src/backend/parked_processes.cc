#include "backend/parked_processes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

namespace gpulet::backend {
namespace {

// The ids of grants whose processes are loaded ahead of a gpulet; frontends do not assign them.
constexpr std::uint64_t kFirstAhead = std::uint64_t{1} << 63U;

Status memory_needed() { return {StatusCode::cancelled, "its memory is needed"}; }

}  // namespace

ParkedProcesses::ParkedProcesses(const net::asio::any_io_executor& executor,
                                 ProcessStarter& starter, const ParkingOptions& options,
                                 std::function<void(const Visit&)> each_running,
                                 std::function<void()> on_ended)
    : starter_(starter),
      options_(options),
      each_running_(std::move(each_running)),
      on_ended_(std::move(on_ended)),
      stay_timer_(executor),
      ahead_timer_(executor) {}

ParkedProcesses::~ParkedProcesses() { close(); }

void ParkedProcesses::gpulets_changed(bool loading) {
  gpulets_load_ = loading;
  tried_ahead_.clear();
  load_ahead_later();
}

bool ParkedProcesses::would_park(const node::StartGpulet& order) const {
  if (closed_ || order.memory_mb > options_.memory_mb || !may_park(order) ||
      starter_.changes_in_place(order.device))
    return false;
  if (!starter_.driver(order.device).ready()) return false;
  ParkingSpace space = space_of(order.device);
  space.running -= order.memory_mb;
  if (space.allowed() < order.memory_mb) return false;
  const std::vector<LoadedProcess> others = staying();
  return std::none_of(others.begin(), others.end(),
                      [&](const LoadedProcess& other) { return can_serve(other, order); });
}

void ParkedProcesses::park(ParkedProcess process) {
  const std::uint32_t device = process.order.device;
  process.proxy->set_callbacks(callbacks_for(device, process.grant));
  entries_.push_back({std::move(process), State::ready, net::now()});
  limit(device, space_of(device).allowed());
  set_timer();
}

std::optional<ParkedProcess> ParkedProcesses::take(const node::StartGpulet& order) {
  if (starter_.changes_in_place(order.device) || !starter_.driver(order.device).ready())
    return std::nullopt;
  auto found = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const auto& [process, state, since] = *entry;
    const LoadedProcess loaded{process.order, process.ready.condition.sizes_to_capture};
    if (state != State::ready || !can_serve(loaded, order)) continue;
    if (found == entries_.end() || process.order.memory_mb < found->process.order.memory_mb)
      found = entry;
  }
  if (found == entries_.end()) return std::nullopt;
  ParkedProcess taken = std::move(found->process);
  entries_.erase(found);
  set_timer();
  return taken;
}

// ---- memory

bool ParkedProcesses::make_room(const node::StartGpulet& order) {
  if (entries_.empty()) return true;
  ParkingSpace space = space_of(order.device);
  space.running += order.memory_mb;
  limit(order.device, space.allowed());
  const double parked_mb = memory_mb(order.device);
  return parked_mb == 0 || space.device == 0 || space.running + parked_mb <= space.device;
}

bool ParkedProcesses::end_one(std::uint32_t device) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [device](const Entry& entry) {
    return entry.process.order.device == device;
  });
  if (found == entries_.end()) return false;
  end(*found, memory_needed());
  return true;
}

void ParkedProcesses::end_all_of(std::uint32_t device, const Status& why) {
  for (Entry& entry : entries_) {
    if (entry.process.order.device == device) end(entry, why);
  }
}

// Kills all of them first, because a driver may take time to end one.
void ParkedProcesses::close() {
  closed_ = true;
  stay_timer_.cancel();
  ahead_timer_.cancel();
  for (Entry& entry : entries_) end(entry, {StatusCode::cancelled, "its backend ends"});
  for (Entry& entry : std::exchange(entries_, {})) {
    entry.process.proxy.reset();
    starter_.driver(entry.process.order.device).release(entry.process.grant);
  }
}

ParkingSpace ParkedProcesses::space_of(std::uint32_t device) const {
  ParkingSpace space{starter_.described(device).memory_mb, options_.memory_mb};
  each_running_([&](const node::StartGpulet& order) {
    if (order.device == device) space.running += order.memory_mb;
  });
  return space;
}

double ParkedProcesses::memory_mb(std::uint32_t device) const {
  double sum = 0;
  for (const Entry& entry : entries_) {
    if (entry.process.order.device == device) sum += entry.process.order.memory_mb;
  }
  return sum;
}

double ParkedProcesses::staying_mb(std::uint32_t device) const {
  double sum = 0;
  for (const LoadedProcess& process : staying()) {
    if (process.order.device == device) sum += process.order.memory_mb;
  }
  return sum;
}

std::vector<LoadedProcess> ParkedProcesses::staying() const {
  std::vector<LoadedProcess> found;
  for (const auto& [process, state, since] : entries_) {
    if (state != State::ending)
      found.push_back({process.order, process.ready.condition.sizes_to_capture});
  }
  return found;
}

// Ends those that came first.
void ParkedProcesses::limit(std::uint32_t device, double most_mb) {
  for (Entry& entry : entries_) {
    if (staying_mb(device) <= most_mb) return;
    if (entry.process.order.device == device) end(entry, memory_needed());
  }
}

std::vector<pid_t> ParkedProcesses::processes() const {
  std::vector<pid_t> found;
  for (const Entry& entry : entries_) found.push_back(entry.process.proxy->pid());
  return found;
}

// ---- their lives

ProxyCallbacks ParkedProcesses::callbacks_for(std::uint32_t device, GpuletId grant) {
  ProxyCallbacks callbacks;
  callbacks.on_ready = [this, grant](ProxyReady ready) { loaded(grant, std::move(ready)); };
  callbacks.on_ran = [](const BatchRan&, const Bytes&) {};
  callbacks.on_exit = [this, grant](const Status& how) { ended(grant, how); };
  callbacks.end = [this, device, grant](pid_t process) {
    return starter_.driver(device).end(grant, process);
  };
  return callbacks;
}

void ParkedProcesses::loaded(GpuletId grant, ProxyReady ready) {
  for (Entry& entry : entries_) {
    if (entry.process.grant != grant || entry.state != State::loading) continue;
    if (!ready.status.ok()) return end(entry, ready.status);
    entry.process.ready = std::move(ready);
    entry.state = State::ready;
    entry.since = net::now();
    set_timer();
    load_ahead_later();
  }
}

void ParkedProcesses::ended(GpuletId grant, const Status& how) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [grant](const Entry& entry) {
    return entry.process.grant == grant;
  });
  if (found == entries_.end()) return;
  const std::uint32_t device = found->process.order.device;
  spdlog::info("device {}: parked process {} has ended: {}", device, found->process.proxy->pid(),
               how.ok() ? "it exited" : how.message());
  entries_.erase(found);
  starter_.driver(device).release(grant);
  set_timer();
  load_ahead_later();
  on_ended_();
}

void ParkedProcesses::end(Entry& entry, const Status& why) {
  if (std::exchange(entry.state, State::ending) != State::ending) entry.process.proxy->kill(why);
}

void ParkedProcesses::end_overstayed() {
  for (Entry& entry : entries_) {
    if (entry.state == State::ready && entry.since + kLongestStay <= net::now())
      end(entry, {StatusCode::cancelled, "no gpulet needed it"});
  }
  set_timer();
}

void ParkedProcesses::set_timer() {
  Time next = kNever;
  for (const Entry& entry : entries_) {
    if (entry.state == State::ready) next = std::min(next, entry.since + kLongestStay);
  }
  stay_timer_.cancel();
  if (next != kNever) stay_timer_.set(next, [this] { end_overstayed(); });
}

// ---- loading ahead

void ParkedProcesses::load_ahead_later() {
  if (!options_.load_ahead || closed_) return;
  ahead_timer_.set_after(options_.quiet, [this] { load_ahead(); });
}

// One at a time. What was tried is not tried again before the gpulets change.
void ParkedProcesses::load_ahead() {
  const bool loads = std::any_of(entries_.begin(), entries_.end(),
                                 [](const Entry& entry) { return entry.state != State::ready; });
  if (gpulets_load_ || loads) return;
  std::vector<LoadedProcess> exist = staying();
  exist.insert(exist.end(), tried_ahead_.begin(), tried_ahead_.end());
  std::map<std::uint32_t, std::vector<Share>> sizes;
  std::map<std::uint32_t, double> left_mb;
  for (std::uint32_t device = 0; device < starter_.devices(); ++device) {
    if (starter_.changes_in_place(device) || !starter_.driver(device).ready()) continue;
    sizes[device] = starter_.described(device).sizes;
    left_mb[device] = space_of(device).allowed() - memory_mb(device);
  }
  std::vector<node::StartGpulet> running;
  each_running_([&running](const node::StartGpulet& order) { running.push_back(order); });
  std::optional<node::StartGpulet> order = next_ahead(running, exist, sizes, left_mb);
  if (!order) return;
  tried_ahead_.push_back({*order});
  const GpuletId grant{kFirstAhead + ++aheads_};
  order->gpulet = grant;
  const std::uint32_t device = order->device;
  ProcessStarter::Started started = starter_.start(*order, callbacks_for(device, grant));
  if (!started.status.ok()) {
    spdlog::warn("device {}: no process is loaded ahead: {}", device, started.status.to_string());
    load_ahead_later();
    return;
  }
  spdlog::info("device {}: process {} is loaded ahead, for gpulets of {} %", device,
               started.proxy->pid(), order->size.percent);
  entries_.push_back(
      {{*std::move(order), grant, {}, std::move(started.proxy)}, State::loading, net::now()});
}

}  // namespace gpulet::backend
