#include "gpulet/serve/backend_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/backend_core_impl.h"

namespace gpulet::serve {
namespace {

constexpr int kSilentHeartbeats = 4;  // heartbeat intervals without a message: the peer is gone
// Bounds a number from the wire: neither a busy loop nor an overflow of a time.
constexpr Duration kShortestHeartbeat = std::chrono::milliseconds(1);
constexpr Duration kLongestHeartbeat = std::chrono::hours(1);

// Bounds a number from the wire, so that it cannot overflow a time.
constexpr Duration kLongestExpected = std::chrono::hours(1);

// Rounding may lift a sum of cores that was scaled to the device slightly above it.
constexpr double kRounding = 1 + 1e-9;
constexpr double kPercent = 100;

}  // namespace

// ---- BackendCore

BackendCore::BackendCore(BackendCoreOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
BackendCore::~BackendCore() = default;
void BackendCore::on(BackendEvent event, Time now, BackendEffects& effects) {
  impl_->on(std::move(event), now, effects);
}
Time BackendCore::next_wakeup() const { return impl_->next_wakeup(); }
bool BackendCore::finished() const { return impl_->finished(); }
bool BackendCore::takes_batches(GpuletId gpulet) const {
  return impl_->phase_of(gpulet) == GpuletPhase::ready;
}
std::set<std::string, std::less<>> BackendCore::files_in_use() const {
  return impl_->files_in_use();
}
std::optional<GpuletPhase> BackendCore::phase_of(GpuletId gpulet) const {
  return impl_->phase_of(gpulet);
}

// ---- the frontend

BackendCore::Impl::Impl(BackendCoreOptions options) : options_(std::move(options)) {
  for (const auto& offer : options_.devices) {
    LatencySimulator& simulator =
        simulators_.emplace_back(offer.device.type, options_.profiles, options_.interference);
    simulator.vary(
        options_.simulated_cv,
        stream_seed(options_.simulation_seed, fmt::format("device {}", simulators_.size() - 1)));
  }
  on_device_.resize(options_.devices.size());
  device_faults_.resize(options_.devices.size());
}

void BackendCore::Impl::on(BackendEvent event, Time now, BackendEffects& effects) {
  std::visit([&](auto& one) { on_event(one, Now{now, effects}); }, event);
  if (some_gone_) erase_gone();
  drop_stale_checks();
}

Time BackendCore::Impl::next_wakeup() const {
  auto next = kNever;
  if (connected_ && !disconnecting_) {
    next = heartbeat_every_
               ? std::min(next_heartbeat_, last_message_ + kSilentHeartbeats * *heartbeat_every_)
               : connected_at_ + options_.welcome_timeout;
  }
  next = std::min(next, drain_until_);
  return checks_.empty() ? next : std::min(next, checks_.top().first);
}

std::optional<GpuletPhase> BackendCore::Impl::phase_of(GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? std::nullopt : std::optional(found->second.phase());
}

void BackendCore::Impl::on_event(FrontendConnected& /*event*/, Now now) {
  connected_ = true;
  disconnecting_ = false;
  connected_at_ = now.time;
  last_message_ = now.time;
  heartbeat_every_.reset();
  next_heartbeat_ = kNever;
  requested_files_.clear();

  Hello hello{options_.node, options_.devices, {}};
  for (std::size_t i = 0; i < hello.devices.size(); ++i) hello.devices[i].fault = device_faults_[i];
  for (const auto& [id, gpulet] : gpulets_) {
    // The frontend retired these already.
    if (gpulet.phase() != GpuletPhase::retiring) hello.gpulets.push_back(gpulet.report());
  }
  send(std::move(hello), now);
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching) request_files(gpulet, now);
  }
}

void BackendCore::Impl::on_event(FrontendDisconnected& /*event*/, Now now) {
  connected_ = false;
  for (auto& [id, gpulet] : gpulets_) {
    for (auto& batch : gpulet.held) batch.orphaned = true;
  }
  if (shutting_down_) retire_all(now);
}

void BackendCore::Impl::on_event(Welcome& event, Now now) {
  last_message_ = now.time;
  heartbeat_every_ = std::clamp(event.heartbeat_every, kShortestHeartbeat, kLongestHeartbeat);
  next_heartbeat_ = now.time + *heartbeat_every_;
}

void BackendCore::Impl::on_event(Heartbeat& /*event*/, Now now) { last_message_ = now.time; }

void BackendCore::Impl::on_event(TimePassed& /*event*/, Now now) {
  check_frontend(now);
  if (now.time >= drain_until_) retire_all(now);
  while (!checks_.empty() && checks_.top().first <= now.time) {
    const auto [time, id] = checks_.top();
    checks_.pop();
    auto* gpulet = find(id);
    if (gpulet == nullptr || gpulet->check_at != time) continue;  // an earlier check replaced it
    gpulet->check_at = kNever;
    check(*gpulet, now);
    schedule_check(*gpulet);
  }
}

void BackendCore::Impl::check_frontend(Now now) {
  if (!connected_ || disconnecting_) return;
  const bool silent = heartbeat_every_
                          ? now.time >= last_message_ + kSilentHeartbeats * *heartbeat_every_
                          : now.time >= connected_at_ + options_.welcome_timeout;
  if (silent) {
    disconnecting_ = true;
    now.effects.push_back(DisconnectFrontend{
        {StatusCode::timeout, heartbeat_every_ ? "the frontend sent no heartbeat in time"
                                               : "the frontend sent no Welcome in time"}});
  } else if (heartbeat_every_ && now.time >= next_heartbeat_) {
    send(heartbeat(), now);
    next_heartbeat_ = now.time + *heartbeat_every_;
  }
}

// Ready gpulets serve on for drain_timeout, while the frontend moves their models elsewhere.
void BackendCore::Impl::on_event(ShutDown& /*event*/, Now now) {
  shutting_down_ = true;
  for (auto& [id, gpulet] : gpulets_) {
    if (!connected_ || gpulet.phase() != GpuletPhase::ready) retire(gpulet, now);
  }
  const bool serves = std::any_of(gpulets_.begin(), gpulets_.end(), [](const auto& entry) {
    return entry.second.phase() == GpuletPhase::ready;
  });
  if (!serves) return;
  drain_until_ = now.time + options_.drain_timeout;
  send(Draining{}, now);
}

void BackendCore::Impl::retire_all(Now now) {
  drain_until_ = kNever;
  for (auto& [id, gpulet] : gpulets_) retire(gpulet, now);
}

Heartbeat BackendCore::Impl::heartbeat() const {
  Heartbeat beat;
  for (const auto& [device, power] : power_) {
    if (!power.usage_w && !power.limit_w && !power.energy_j) continue;
    beat.power.push_back(power);
    beat.power.back().device = device;
  }
  return beat;
}

void BackendCore::Impl::send(BackendMessage message, Now now) {
  if (connected_) now.effects.push_back(SendToFrontend{std::move(message)});
}

// ---- batches

void BackendCore::Impl::on_event(BatchArrived& event, Now now) {
  last_message_ = now.time;
  const auto expected =
      std::clamp(event.batch.expected_duration, Duration::zero(), kLongestExpected);
  HeldBatch held{event.batch.id, event.batch.model, event.batch.count,
                 expected,       event.arrived,     now.time,
                 false};
  const auto reject = [&](Status why) {
    BatchResult refused;
    refused.id = event.batch.id;
    refused.status = std::move(why);
    respond(held, std::move(refused), now);
  };
  if (Status why = refusal(event, now.time); !why.ok()) return reject(std::move(why));
  auto& gpulet = *find(event.batch.gpulet);
  const auto latency = simulated_latency(gpulet, event.batch);
  if (!latency.ok()) return reject(latency.status());
  RunBatch run;
  run.id = event.batch.id;
  run.model = event.batch.model;
  run.count = event.batch.count;
  run.start_within = event.batch.start_within - (now.time - event.arrived);
  run.simulated_latency = latency.value();
  auto input = event.batch.inputs.empty() ? Bytes() : std::move(event.batch.inputs.front());
  run.input_bytes = input.size();
  if (gpulet.held.empty()) gpulet.last_progress = now.time;
  gpulet.held.push_back(std::move(held));
  schedule_check(gpulet);
  now.effects.push_back(RunOnProxy{gpulet.id(), std::move(run), std::move(input)});
}

Status BackendCore::Impl::refusal(const BatchArrived& event, Time now) const {
  const std::string name = name_of(event.batch.gpulet);
  const auto found = gpulets_.find(event.batch.gpulet);
  if (found == gpulets_.end()) {
    return {StatusCode::unavailable,
            fmt::format("{} does not exist on node '{}'", name, options_.node)};
  }
  const auto& gpulet = found->second;
  if (gpulet.phase() != GpuletPhase::ready || !gpulet.terminating.ok()) {
    return {StatusCode::unavailable,
            gpulet.terminating.ok()
                ? fmt::format("{} accepts no batches: it is {}", name, to_string(gpulet.phase()))
                : name + " accepts no batches: its process is being killed"};
  }
  auto fits = gpulet.check(event.batch);
  if (!fits.ok()) return fits;
  if (now - event.arrived >= event.batch.start_within) {
    return {StatusCode::too_late,
            fmt::format("the batch took longer to arrive than the {:f} ms within which it had to "
                        "start",
                        to_ms(event.batch.start_within))};
  }
  if (!event.placed) {
    return {StatusCode::overloaded, name + " has no memory left for another batch"};
  }
  return {};
}

// The neighbours are the oldest batches of the other gpulets of the device.
Result<Duration> BackendCore::Impl::simulated_latency(const HostedGpulet& gpulet,
                                                      const Batch& batch) {
  if (!is_simulated(gpulet.device())) return Duration{};
  if (gpulet.controlled()) return latency_on(gpulet, cores_of(gpulet), batch.model, batch.count);
  std::vector<SimulatedBatch> beside;
  std::uint32_t processes = 1;
  for (const HostedGpulet* other : on_device_[gpulet.device()]) {
    if (other == &gpulet) continue;
    if (gpulet.instance() && other->instance() == gpulet.instance()) ++processes;
    if (other->held.empty() || other->controlled()) continue;
    beside.push_back({other->held.front().model, other->held.front().count, other->size()});
  }
  return simulators_[gpulet.device()].latency({batch.model, batch.count, gpulet.size(), processes},
                                              beside);
}

void BackendCore::Impl::on_event(BatchCompleted& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  const auto found = std::find_if(gpulet->held.begin(), gpulet->held.end(),
                                  [&](const auto& batch) { return batch.id == event.ran.id; });
  if (found == gpulet->held.end()) {
    if (!gpulet->terminating.ok()) return;  // failed when the process was killed
    kill(*gpulet, FailureCause::model_crash,
         {StatusCode::malformed,
          fmt::format("the process of gpulet {} returned a batch that it does not hold",
                      event.gpulet.value)},
         now);
    return;
  }
  if (event.ran.device == partition::DeviceHealth::lost)
    return lose_device(*gpulet, event.ran.status, now);
  const auto held = std::move(*found);
  gpulet->held.erase(found);
  gpulet->last_progress = now.time;
  schedule_check(*gpulet);

  BatchResult result;
  result.id = held.id;
  result.status = std::move(event.ran.status);
  if (result.status.ok()) {
    result.outputs = std::move(event.outputs);
  } else if (event.ran.cause == FailureCause::input) {
    result.cause = FailureCause::input;  // a process is not trusted to report other causes
  }
  result.received = held.sent - held.arrived;
  result.queued = result.received + event.ran.queued;
  result.executed = event.ran.executed;
  respond(held, std::move(result), now);
}

void BackendCore::Impl::respond(const HeldBatch& batch, BatchResult result, Now now) {
  if (!batch.orphaned) send(std::move(result), now);
}

void BackendCore::Impl::fail_batches(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                                     const ProcessEnd& end, Now now) {
  for (const auto& held : gpulet.held) {
    BatchResult result;
    result.id = held.id;
    result.cause = cause;
    result.end = end;
    result.status = {StatusCode::unavailable,
                     fmt::format("the process of gpulet {} ended while it held the batch: {}",
                                 gpulet.id().value, why.to_string())};
    respond(held, std::move(result), now);
  }
  gpulet.held.clear();
}

// ---- controlled cores

double BackendCore::Impl::device_cores(std::uint32_t device) const {
  return options_.devices[device].device.cores;
}

double BackendCore::Impl::cores_of(const HostedGpulet& gpulet) const {
  return gpulet.cores.value_or(gpulet.size().fraction() * device_cores(gpulet.device()));
}

Status BackendCore::Impl::check_controlled(const CreateGpulet& request) const {
  if (!(device_cores(request.device) > 0)) {
    return {StatusCode::invalid, fmt::format("device {} of node '{}' has no cores to control",
                                             request.device, options_.node)};
  }
  if (!is_simulated(request.device)) return {};
  for (const ModelToServe& model : request.models) {
    const auto possible = simulators_[request.device].latency_under_quota(
        model.name, 1, static_cast<double>(request.size.percent));
    if (!possible.ok()) return possible.status();
  }
  return {};
}

void BackendCore::Impl::on_event(SetCores& event, Now now) {
  last_message_ = now.time;
  HostedGpulet* const gpulet = find(event.id);
  if (gpulet == nullptr || !gpulet->controlled()) return;
  const double most = device_cores(gpulet->device());
  if (!(event.cores > 0 && event.cores <= most * kRounding)) {
    report_cores_refused(
        *gpulet,
        {StatusCode::invalid,
         fmt::format("the cores of a gpulet on that device must be above 0 and at most {:f}; was "
                     "{:f}",
                     most, event.cores)},
        now);
    return;
  }
  const double before = cores_of(*gpulet);
  gpulet->cores = std::min(event.cores, most);
  if (gpulet->phase() != GpuletPhase::ready || !gpulet->terminating.ok()) return;
  now.effects.push_back(AdjustCores{event.id, *gpulet->cores, stretch(*gpulet, before)});
}

void BackendCore::Impl::on_event(CoresSet& event, Now now) {
  const HostedGpulet* const gpulet = find(event.gpulet);
  if (event.status.ok() || gpulet == nullptr || gpulet->phase() != GpuletPhase::ready) return;
  report_cores_refused(*gpulet, std::move(event.status), now);
}

void BackendCore::Impl::report_cores_refused(const HostedGpulet& gpulet, Status why, Now now) {
  GpuletReport report = gpulet.report();
  report.status = std::move(why);
  send(std::move(report), now);
}

Result<Duration> BackendCore::Impl::latency_on(const HostedGpulet& gpulet, double cores,
                                               const std::string& model,
                                               std::uint32_t count) const {
  return simulators_[gpulet.device()].latency_under_quota(
      model, count, kPercent * cores / device_cores(gpulet.device()));
}

double BackendCore::Impl::stretch(const HostedGpulet& gpulet, double cores_before) const {
  if (!is_simulated(gpulet.device()) || gpulet.held.empty()) return 1;
  const HeldBatch& running = gpulet.held.front();
  const auto before = latency_on(gpulet, cores_before, running.model, running.count);
  const auto after = latency_on(gpulet, cores_of(gpulet), running.model, running.count);
  if (!before.ok() || !after.ok()) return 1;
  return to_seconds(after.value()) / to_seconds(before.value());
}

}  // namespace gpulet::serve
