#include "gpulet/node/backend_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "node/backend_core_impl.h"

namespace gpulet::node {
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
// Bounds the reports that a process can cause.
constexpr Duration kBetweenConditions = std::chrono::seconds(1);

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
bool BackendCore::takes_batches(FrontendId frontend, GpuletId gpulet) const {
  return is_owner(frontend, gpulet) && impl_->phase_of(gpulet) == GpuletPhase::ready;
}
bool BackendCore::is_owner(FrontendId frontend, GpuletId gpulet) const {
  return impl_->is_owner(frontend, gpulet);
}
bool BackendCore::obeys(FrontendId frontend) const { return impl_->fence().leader() == frontend; }
std::uint64_t BackendCore::commands_refused() const { return impl_->commands_refused(); }
std::set<std::string, std::less<>> BackendCore::files_in_use() const {
  return impl_->files_in_use();
}
std::optional<GpuletPhase> BackendCore::phase_of(GpuletId gpulet) const {
  return impl_->phase_of(gpulet);
}

// ---- the frontends

BackendCore::Impl::Impl(BackendCoreOptions options) : options_(std::move(options)) {
  for (const auto& offer : options_.devices) {
    profile::LatencySimulator& simulator =
        simulators_.emplace_back(offer.device.type, options_.profiles, options_.interference);
    simulator.vary(
        options_.simulated_cv,
        stream_seed(options_.simulation_seed, fmt::format("device {}", simulators_.size() - 1)));
  }
  on_device_.resize(options_.devices.size());
  device_faults_.resize(options_.devices.size());
}

void BackendCore::Impl::on(BackendEvent event, Time now, BackendEffects& effects) {
  std::visit([&](auto& one) { on_event(one, Turn{now, effects}); }, event);
  if (some_gone_) erase_gone();
  drop_stale_checks();
}

Time BackendCore::Impl::next_wakeup() const {
  Time next = drain_until_;
  for (const auto& [id, frontend] : frontends_) {
    if (frontend.disconnecting) continue;
    next = std::min({next, frontend.next_heartbeat, frontend.silent_at(options_.welcome_timeout)});
  }
  return checks_.empty() ? next : std::min(next, checks_.top().first);
}

std::optional<GpuletPhase> BackendCore::Impl::phase_of(GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? std::nullopt : std::optional(found->second.phase());
}

Time BackendCore::Impl::Frontend::silent_at(Duration welcome_timeout) const {
  return heartbeat_every ? last_message + kSilentHeartbeats * *heartbeat_every
                         : connected_at + welcome_timeout;
}

void BackendCore::Impl::on_event(FrontendConnected& event, Turn turn) {
  Frontend& frontend = frontends_[event.frontend] = {};
  frontend.connected_at = turn.time;
  frontend.last_message = turn.time;

  Hello hello{options_.node, options_.devices, {}, kProtocolLevel, fence_.term()};
  for (std::size_t i = 0; i < hello.devices.size(); ++i) hello.devices[i].fault = device_faults_[i];
  for (const auto& [id, gpulet] : gpulets_) {
    // The frontend retired these already.
    if (gpulet.phase() != GpuletPhase::retiring) hello.gpulets.push_back(gpulet.report());
  }
  send_to(event.frontend, std::move(hello), turn);
}

void BackendCore::Impl::on_event(FrontendDisconnected& event, Turn turn) {
  const bool led = fence_.leader() == event.frontend;
  frontends_.erase(event.frontend);
  fence_.disconnected(event.frontend);
  if (led) follow_leader(turn);
  if (shutting_down_ && (led || frontends_.empty())) retire_all(turn);
}

void BackendCore::Impl::on_event(CommandReceived& event, Turn turn) {
  const auto found = frontends_.find(event.frontend);
  if (found == frontends_.end()) return;
  found->second.last_message = turn.time;
  std::visit([&](auto& command) { on_command(event.frontend, command, turn); }, event.command);
}

void BackendCore::Impl::on_command(FrontendId from, Welcome& command, Turn turn) {
  Frontend& frontend = frontends_.at(from);
  if (frontend.heartbeat_every) {
    // A second one could take over another member's gpulets.
    frontend.disconnecting = true;
    turn.effects.push_back(DisconnectFrontend{
        from, {StatusCode::invalid, "the frontend sent a second Welcome on one connection"}});
    return;
  }
  frontend.level = command.level;
  frontend.member = std::move(command.member);
  frontend.heartbeat_every =
      std::clamp(command.heartbeat_every, kShortestHeartbeat, kLongestHeartbeat);
  frontend.next_heartbeat = turn.time + *frontend.heartbeat_every;
  const auto before = fence_.leader();
  fence_.welcomed(from, command.level);
  if (fence_.leader() != before) follow_leader(turn);
}

void BackendCore::Impl::on_command(FrontendId /*from*/, Heartbeat& /*command*/, Turn /*turn*/) {}

void BackendCore::Impl::on_command(FrontendId from, TakeLeadership& command, Turn turn) {
  const auto before = fence_.leader();
  if (!fence_.take_leadership(from, command.term)) {
    ++commands_refused_;
    return send_to(from, Superseded{fence_.term()}, turn);
  }
  BackendState state{command.term, {}};
  for (const auto& [id, gpulet] : gpulets_) state.gpulets.push_back(gpulet.report());
  send_to(from, std::move(state), turn);
  if (before == from) return;
  if (before) send_to(*before, Superseded{fence_.term()}, turn);
  follow_leader(turn);
}

void BackendCore::Impl::follow_leader(Turn turn) {
  requested_files_.clear();
  turn.effects.push_back(DropUnfinishedFiles{});
  if (!fence_.leader()) return;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching) request_files(gpulet, turn);
  }
}

bool BackendCore::Impl::admits(FrontendId from, Term term, Turn turn) {
  if (fence_.admits(from, term)) return true;
  ++commands_refused_;
  send_to(from, Superseded{fence_.term()}, turn);
  return false;
}

// ---- owners of gpulets

// Of two connections with a member's name, the older one belongs to a process that was replaced.
std::optional<FrontendId> BackendCore::Impl::frontend_of(const std::string& member) const {
  std::optional<FrontendId> newest;
  for (const auto& [id, frontend] : frontends_) {
    if (!member.empty() && frontend.member == member) newest = id;
  }
  return newest;
}

bool BackendCore::Impl::is_owner(FrontendId frontend, GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  const bool leaders = found == gpulets_.end() || found->second.owner.empty();
  return leaders ? fence_.leader() == frontend : frontend_of(found->second.owner) == frontend;
}

bool BackendCore::Impl::admits_batch(FrontendId from, const Batch& batch, Turn turn) {
  const auto found = gpulets_.find(batch.gpulet);
  if (found == gpulets_.end() || found->second.owner.empty()) return admits(from, batch.term, turn);
  if (frontend_of(found->second.owner) == from) return true;
  ++commands_refused_;
  return false;
}

void BackendCore::Impl::on_command(FrontendId from, SetOwner& command, Turn turn) {
  if (!admits(from, command.term, turn)) return;
  HostedGpulet* const gpulet = find(command.id);
  if (gpulet == nullptr || gpulet->owner == command.owner) return;
  const auto former = frontend_of(std::exchange(gpulet->owner, std::move(command.owner)));
  const auto owner = frontend_of(gpulet->owner);
  if (former) send_to(*former, gpulet->report(), turn);
  if (owner && owner != former) send_to(*owner, gpulet->report(), turn);
}

void BackendCore::Impl::send_report(GpuletReport report, Turn turn) {
  const auto owner = frontend_of(report.owner);
  if (owner && fence_.leader() && fence_.leader() != owner) send_to(*owner, report, turn);
  send(std::move(report), turn);
}

void BackendCore::Impl::on_event(TimePassed& /*event*/, Turn turn) {
  excuse_silence(turn.time - next_wakeup(), turn.time);
  check_frontends(turn);
  if (turn.time >= drain_until_) retire_all(turn);
  while (!checks_.empty() && checks_.top().first <= turn.time) {
    const auto [time, id] = checks_.top();
    checks_.pop();
    auto* gpulet = find(id);
    if (gpulet == nullptr || gpulet->check_at != time) continue;  // an earlier check replaced it
    gpulet->check_at = kNever;
    check(*gpulet, turn);
    schedule_check(*gpulet);
  }
}

// What frontends sent while this backend stood still may not have been read yet.
void BackendCore::Impl::excuse_silence(Duration late, Time now) {
  if (late <= Duration::zero()) return;
  for (auto& [id, frontend] : frontends_) {
    frontend.connected_at = std::min(now, frontend.connected_at + late);
    frontend.last_message = std::min(now, frontend.last_message + late);
  }
}

void BackendCore::Impl::check_frontends(Turn turn) {
  for (auto& [id, frontend] : frontends_) {
    if (frontend.disconnecting) continue;
    if (turn.time >= frontend.silent_at(options_.welcome_timeout)) {
      frontend.disconnecting = true;
      turn.effects.push_back(
          DisconnectFrontend{id,
                             {StatusCode::timeout, frontend.heartbeat_every
                                                       ? "the frontend sent no heartbeat in time"
                                                       : "the frontend sent no Welcome in time"}});
    } else if (turn.time >= frontend.next_heartbeat) {
      send_to(id, heartbeat(), turn);
      frontend.next_heartbeat = turn.time + *frontend.heartbeat_every;
    }
  }
}

// Ready gpulets serve on for drain_timeout, while the frontend moves their models elsewhere.
void BackendCore::Impl::on_event(ShutDown& /*event*/, Turn turn) {
  shutting_down_ = true;
  for (auto& [id, gpulet] : gpulets_) {
    if (frontends_.empty() || gpulet.phase() != GpuletPhase::ready) retire(gpulet, turn);
  }
  const bool serves = std::any_of(gpulets_.begin(), gpulets_.end(), [](const auto& entry) {
    return entry.second.phase() == GpuletPhase::ready;
  });
  if (!serves) return;
  drain_until_ = turn.time + options_.drain_timeout;
  send_to_all(Draining{}, turn);
}

void BackendCore::Impl::retire_all(Turn turn) {
  drain_until_ = kNever;
  for (auto& [id, gpulet] : gpulets_) retire(gpulet, turn);
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

// Drops a message that the frontend would not understand.
void BackendCore::Impl::send_to(FrontendId frontend, BackendMessage message, Turn turn) {
  const auto found = frontends_.find(frontend);
  if (found == frontends_.end()) return;
  if (std::holds_alternative<Superseded>(message) && found->second.level == 0) return;
  turn.effects.push_back(SendToFrontend{frontend, std::move(message)});
}

void BackendCore::Impl::send(BackendMessage message, Turn turn) {
  const auto leader = fence_.leader();
  if (!leader) return send_to_all(message, turn);
  send_to(*leader, std::move(message), turn);
}

void BackendCore::Impl::send_to_all(const BackendMessage& message, Turn turn) {
  for (const auto& [id, frontend] : frontends_) send_to(id, message, turn);
}

// ---- batches

void BackendCore::Impl::on_command(FrontendId from, BatchArrived& event, Turn turn) {
  const auto expected =
      std::clamp(event.batch.expected_duration, Duration::zero(), kLongestExpected);
  HeldBatch held{from,     event.batch.id, event.batch.model, event.batch.count,
                 expected, event.arrived,  turn.time};
  const auto reject = [&](Status why, bool elsewhere) {
    BatchResult refused;
    refused.id = event.batch.id;
    refused.status = std::move(why);
    refused.elsewhere = elsewhere;
    respond(held, std::move(refused), turn);
  };
  if (!admits_batch(from, event.batch, turn)) {
    return reject({StatusCode::unavailable,
                   fmt::format("another frontend sends the batches of {} on node '{}'",
                               name_of(event.batch.gpulet), options_.node)},
                  true);
  }
  if (Status why = refusal(event, turn.time); !why.ok())
    return reject(std::move(why), !may_run(event.batch.gpulet));
  auto& gpulet = *find(event.batch.gpulet);
  const auto latency = simulated_latency(gpulet, event.batch);
  if (!latency.ok()) return reject(latency.status(), false);
  RunBatch run;
  run.id = event.batch.id;
  run.model = event.batch.model;
  run.count = event.batch.count;
  run.start_within = event.batch.start_within - (turn.time - event.arrived);
  run.simulated_latency = latency.value();
  auto input = event.batch.inputs.empty() ? Bytes() : std::move(event.batch.inputs.front());
  run.input_bytes = input.size();
  if (gpulet.held.empty()) gpulet.last_progress = turn.time;
  gpulet.held.push_back(std::move(held));
  schedule_check(gpulet);
  turn.effects.push_back(RunOnProxy{gpulet.id(), std::move(run), std::move(input)});
}

bool BackendCore::Impl::may_run(GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  return found != gpulets_.end() && found->second.phase() != GpuletPhase::retiring &&
         found->second.phase() != GpuletPhase::gone;
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
  const bool held = std::any_of(gpulet.held.begin(), gpulet.held.end(),
                                [&](const auto& one) { return one.id == event.batch.id; });
  if (held) {
    return {StatusCode::invalid,
            fmt::format("{} holds another batch of that number, {}", name, event.batch.id.value)};
  }
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
  std::vector<profile::SimulatedBatch> beside;
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

void BackendCore::Impl::update_condition(HostedGpulet& gpulet, const BatchRan& ran, Turn turn) {
  if (!ran.condition || *ran.condition == gpulet.condition || gpulet.phase() != GpuletPhase::ready)
    return;
  const auto& last = gpulet.condition_reported;
  if (last && turn.time - *last < kBetweenConditions) return;
  gpulet.condition = *ran.condition;
  gpulet.condition_reported = turn.time;
  send_report(gpulet.report(), turn);
}

void BackendCore::Impl::on_event(BatchCompleted& event, Turn turn) {
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
         turn);
    return;
  }
  if (event.ran.device == partition::DeviceHealth::lost)
    return lose_device(*gpulet, event.ran.status, turn);
  const auto held = std::move(*found);
  gpulet->held.erase(found);
  gpulet->last_progress = turn.time;
  schedule_check(*gpulet);
  update_condition(*gpulet, event.ran, turn);

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
  result.detail = std::move(event.ran.detail);
  respond(held, std::move(result), turn);
}

void BackendCore::Impl::respond(const HeldBatch& batch, BatchResult result, Turn turn) {
  send_to(batch.from, std::move(result), turn);
}

void BackendCore::Impl::fail_batches(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                                     const ProcessEnd& end, Turn turn) {
  for (const auto& held : gpulet.held) {
    BatchResult result;
    result.id = held.id;
    result.cause = cause;
    result.end = end;
    result.status = {StatusCode::unavailable,
                     fmt::format("the process of gpulet {} ended while it held the batch: {}",
                                 gpulet.id().value, why.to_string())};
    respond(held, std::move(result), turn);
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

void BackendCore::Impl::on_command(FrontendId from, SetCores& event, Turn turn) {
  if (!admits(from, event.term, turn)) return;
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
        turn);
    return;
  }
  const double before = cores_of(*gpulet);
  gpulet->cores = std::min(event.cores, most);
  if (gpulet->phase() != GpuletPhase::ready || !gpulet->terminating.ok()) return;
  turn.effects.push_back(AdjustCores{event.id, *gpulet->cores, stretch(*gpulet, before)});
}

void BackendCore::Impl::on_event(CoresSet& event, Turn turn) {
  const HostedGpulet* const gpulet = find(event.gpulet);
  if (event.status.ok() || gpulet == nullptr || gpulet->phase() != GpuletPhase::ready) return;
  report_cores_refused(*gpulet, std::move(event.status), turn);
}

void BackendCore::Impl::report_cores_refused(const HostedGpulet& gpulet, Status why, Turn turn) {
  GpuletReport report = gpulet.report();
  report.status = std::move(why);
  send_report(std::move(report), turn);
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

}  // namespace gpulet::node
