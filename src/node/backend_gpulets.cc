#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/core/load_bound.h"
#include "gpulet/node/warm_pool.h"
#include "gpulet/protocol/model_version.h"
#include "node/backend_core_impl.h"

namespace gpulet::node {
namespace {

// A check this late shows that the backend stalled: the process gets its time again.
constexpr Duration kStalled = std::chrono::milliseconds(500);

// Requested bytes of one file that are not on the disk yet.
constexpr std::uint64_t kMaxBytesInFlight = 8 * kModelPieceBytes;
// Files requested at a time. With the limit above, this bounds the buffers of the backend module.
constexpr std::size_t kMaxFilesInFlight = 4;

// The process was killed from outside or for want of memory: SIGHUP, SIGINT, SIGKILL, SIGTERM.
bool is_from_outside(const ProxyEnded& event) {
  const auto& end = event.end;
  if (event.cause == FailureCause::model_crash) return false;
  return end.signal == 1 || end.signal == 2 || end.signal == 9 || end.signal == 15;
}

}  // namespace

// ---- the life of gpulets

HostedGpulet* BackendCore::Impl::find(GpuletId gpulet) {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? nullptr : &found->second;
}

bool BackendCore::Impl::is_simulated(std::uint32_t device) const {
  return options_.all_simulated || options_.devices[device].device.partitioning == "simulated";
}

void BackendCore::Impl::on_command(FrontendId from, GpuletRequested& event, Turn turn) {
  if (!admits(from, event.create.term, turn)) return;
  if (const auto* known = find(event.create.id)) {  // requested twice: report its state
    send_report(known->report(), turn);
    return;
  }
  auto possible = shutting_down_ ? Status(StatusCode::unavailable, "the backend is shutting down")
                                 : check_device(event.create);
  auto made = possible.ok() ? HostedGpulet::create(event.create, turn.time)
                            : Result<HostedGpulet>(possible);
  if (!made.ok()) {
    const bool faulty = !shutting_down_ && event.create.device < device_faults_.size() &&
                        !device_faults_[event.create.device].ok();
    refuse(event.create, faulty ? FailureCause::device : FailureCause::unknown, made.status(),
           turn);
    return;
  }
  for (const auto& model : event.create.models)
    files_.erase(model.sha256);  // the present content of the store counts
  files_.insert(event.stored.begin(), event.stored.end());
  for (const auto& [sha256, bytes] : event.file_bytes) file_bytes_.insert_or_assign(sha256, bytes);
  auto& gpulet = gpulets_.emplace(event.create.id, std::move(made).value()).first->second;
  auto& neighbours = on_device_[gpulet.device()];
  const auto by_id = [](const auto* a, const auto* b) { return a->id() < b->id(); };
  neighbours.insert(std::upper_bound(neighbours.begin(), neighbours.end(), &gpulet, by_id),
                    &gpulet);
  send_report(gpulet.report(), turn);
  if (lacks_files(gpulet)) {
    request_files(gpulet, turn);
  } else {
    start(gpulet, turn);
  }
}

void BackendCore::Impl::refuse(const CreateGpulet& request, FailureCause cause, const Status& why,
                               Turn turn) {
  GpuletReport report;
  report.id = request.id;
  report.device = request.device;
  report.size = request.size;
  report.instance = request.instance;
  report.state = GpuletState::failed;
  report.status = why;
  report.cause = cause;
  send_report(std::move(report), turn);
}

Status BackendCore::Impl::check_device(const CreateGpulet& request) const {
  if (request.device >= options_.devices.size()) {
    return {StatusCode::invalid,
            fmt::format("node '{}' has {} devices; requested number {}", options_.node,
                        options_.devices.size(), request.device)};
  }
  if (options_.devices[request.device].device.mig.has_value() != request.instance.has_value()) {
    return {StatusCode::invalid,
            fmt::format("device {} of node '{}' {}", request.device, options_.node,
                        request.instance
                            ? "is not divided by MIG; requested an instance"
                            : "is divided by MIG; requested a gpulet without an instance")};
  }
  if (const auto& fault = device_faults_[request.device]; !fault.ok()) return fault;
  if (request.part.service == partition::Service::controlled) return check_controlled(request);
  if (is_simulated(request.device)) {
    for (const auto& model : request.models) {
      auto possible = simulators_[request.device].can_run(model.name, 1, request.size);
      if (!possible.ok()) return possible;
    }
  }
  return {};
}

LoadModels BackendCore::Impl::load_request(const HostedGpulet& gpulet) const {
  auto load = gpulet.load_request(files_);
  const auto& type = options_.devices[gpulet.device()].device.type;
  for (std::size_t i = 0; i < load.models.size(); ++i) {
    const auto known = variants_.find({type, version_of(gpulet.models()[i])});
    if (known != variants_.end()) load.models[i].variant = known->second;
  }
  return load;
}

void BackendCore::Impl::remember_variants(const HostedGpulet& gpulet,
                                          const std::vector<std::uint32_t>& variants) {
  const auto& type = options_.devices[gpulet.device()].device.type;
  for (std::size_t i = 0; i < std::min(variants.size(), gpulet.models().size()); ++i) {
    variants_.insert_or_assign({type, version_of(gpulet.models()[i])}, variants[i]);
  }
}

void BackendCore::Impl::start(HostedGpulet& gpulet, Turn turn) {
  gpulet.enter(GpuletPhase::starting, turn.time);
  gpulet.restart_at = kNever;
  schedule_check(gpulet);
  turn.effects.push_back(StartGpulet{
      gpulet.id(), gpulet.device(), gpulet.size(), load_request(gpulet), gpulet.input_capacity(),
      gpulet.output_capacity(), gpulet.memory_mb(), gpulet.instance(), gpulet.controlled()});
}

void BackendCore::Impl::on_event(ProxyStarted& event, Turn turn) {
  auto* gpulet = find(event.gpulet);
  if (gpulet != nullptr && gpulet->phase() == GpuletPhase::starting)
    gpulet->enter(GpuletPhase::loading, turn.time);
}

void BackendCore::Impl::on_event(ProxyLoaded& event, Turn turn) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->terminating.ok())
    return;
  if (event.device == partition::DeviceHealth::lost)
    return lose_device(*gpulet, event.status, turn);
  if (!event.status.ok()) {
    gpulet->device_at_fault = event.device == partition::DeviceHealth::not_ready;
    kill(*gpulet, gpulet->device_at_fault ? FailureCause::device : event.cause, event.status, turn);
    gpulet->failed_model = std::move(event.failed_model);
    return;
  }
  gpulet->found_share = event.found;
  gpulet->load_stages = event.load_stages;
  gpulet->condition = event.condition;
  remember_variants(*gpulet, event.variants);
  turn.effects.push_back(ActivateShare{event.gpulet});
}

void BackendCore::Impl::on_event(ShareActive& event, Turn turn) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->terminating.ok())
    return;
  if (!event.status.ok()) return kill(*gpulet, event.cause, event.status, turn);
  gpulet->enter(GpuletPhase::ready, turn.time);
  gpulet->load_failures = 0;
  gpulet->status = {};
  send_report(gpulet->report(), turn);
  if (gpulet->controlled() && gpulet->cores)
    turn.effects.push_back(AdjustCores{event.gpulet, *gpulet->cores});
}

void BackendCore::Impl::on_command(FrontendId from, AssignGpulet& event, Turn turn) {
  if (!admits(from, event.term, turn)) return;
  if (auto* gpulet = find(event.id)) gpulet->assign(std::move(event.part));
}

void BackendCore::Impl::on_command(FrontendId from, RetireGpulet& event, Turn turn) {
  if (!admits(from, event.term, turn)) return;
  if (auto* gpulet = find(event.id)) return retire(*gpulet, turn);
  GpuletReport report;
  report.id = event.id;
  report.state = GpuletState::gone;
  send_report(std::move(report), turn);
}

void BackendCore::Impl::retire(HostedGpulet& gpulet, Turn turn) {
  const auto phase = gpulet.phase();
  if (phase == GpuletPhase::retiring) return;
  if (!has_process(phase)) return enter_gone(gpulet, turn);
  gpulet.enter(GpuletPhase::retiring, turn.time);
  if (phase == GpuletPhase::ready) {
    turn.effects.push_back(FinishProxy{gpulet.id()});
  } else {
    // It holds no batches, and would complete loading before it ends.
    kill(gpulet, FailureCause::unknown, {StatusCode::cancelled, "retired before it had loaded"},
         turn);
  }
}

void BackendCore::Impl::enter_gone(HostedGpulet& gpulet, Turn turn) {
  gpulet.enter(GpuletPhase::gone, turn.time);
  gpulet.status = {};
  some_gone_ = true;
  send_report(gpulet.report(), turn);
}

void BackendCore::Impl::erase_gone() {
  for (auto& neighbours : on_device_) {
    std::erase_if(neighbours, [](const auto* one) { return one->phase() == GpuletPhase::gone; });
  }
  std::erase_if(gpulets_,
                [](const auto& entry) { return entry.second.phase() == GpuletPhase::gone; });
  some_gone_ = false;
}

void BackendCore::Impl::kill(HostedGpulet& gpulet, FailureCause cause, Status why, Turn turn) {
  turn.effects.push_back(KillProxy{gpulet.id(), why});
  gpulet.terminating = std::move(why);
  gpulet.cause = cause;
  gpulet.failed_model.clear();
}

void BackendCore::Impl::kill_and_fail_batches(HostedGpulet& gpulet, FailureCause cause,
                                              const Status& why, Turn turn) {
  kill(gpulet, cause, why, turn);
  if (gpulet.phase() == GpuletPhase::ready) {
    // Before the process ends, so that the frontend does not send its failed batches here again.
    gpulet.reported_restarting = true;
    send_report(gpulet.report(), turn);
  }
  fail_batches(gpulet, why, cause, {}, turn);
}

// ---- processes that ended

void BackendCore::Impl::on_event(ProxyEnded& event, Turn turn) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  if (event.device == partition::DeviceHealth::not_ready) gpulet->device_at_fault = true;
  const bool killed = !gpulet->terminating.ok();
  if (!killed) {
    const bool was_started = gpulet->phase() != GpuletPhase::starting && !is_from_outside(event);
    gpulet->cause = gpulet->device_at_fault                ? FailureCause::device
                    : event.cause != FailureCause::unknown ? event.cause
                    : was_started                          ? FailureCause::model_crash
                                                           : FailureCause::unknown;
    gpulet->failed_model.clear();
  }
  const auto why =
      gpulet->terminating.ok() ? event.reason : std::exchange(gpulet->terminating, Status());
  record_shared_end(*gpulet);
  fail_batches(*gpulet, why, cause_for_batches(*gpulet, killed, event), event.end, turn);
  gpulet->held_at_end = 0;
  if (gpulet->phase() == GpuletPhase::retiring) return enter_gone(*gpulet, turn);
  fail_or_restart(*gpulet, why, turn);
}

void BackendCore::Impl::record_shared_end(const HostedGpulet& gpulet) {
  const auto& device = options_.devices[gpulet.device()];
  if (device.traits.change != partition::ChangeOfSize::in_place || gpulet.held_at_end > 0) return;
  const auto& neighbours = on_device_[gpulet.device()];
  const auto ends_with_it = [](const HostedGpulet* one) {
    return !one->held.empty() && one->terminating.ok();
  };
  const auto count =
      static_cast<std::size_t>(std::count_if(neighbours.begin(), neighbours.end(), ends_with_it));
  for (HostedGpulet* one : neighbours) {
    if (ends_with_it(one)) one->held_at_end = count;
  }
}

FailureCause BackendCore::Impl::cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                                  const ProxyEnded& event) const {
  if (killed) return gpulet.cause;
  if (is_from_outside(event) || gpulet.phase() == GpuletPhase::retiring)
    return FailureCause::unknown;
  // With batches of several gpulets in the process, the one at fault is unknown.
  if (gpulet.held_at_end > 0)
    return gpulet.held_at_end == 1 ? FailureCause::model_crash : FailureCause::unknown;
  return gpulet.device_at_fault ? FailureCause::device : FailureCause::model_crash;
}

void BackendCore::Impl::fail_or_restart(HostedGpulet& gpulet, const Status& why, Turn turn) {
  const bool was_ready = gpulet.phase() == GpuletPhase::ready;
  if (was_ready && turn.time - gpulet.phase_since() >= options_.healthy_after) gpulet.restarts = 0;
  const bool device_at_fault = std::exchange(gpulet.device_at_fault, false);
  if (!was_ready && !device_at_fault) ++gpulet.load_failures;
  gpulet.status = why.ok() ? Status(StatusCode::unavailable, "the process ended") : why;

  // An invalid model file or share stays invalid, and what hung while loading would hang again.
  const bool permanent = why.code() == StatusCode::invalid || gpulet.cause == FailureCause::hung ||
                         gpulet.load_failures >= options_.load_attempts;
  if (!was_ready && !device_at_fault && permanent) {
    gpulet.enter(GpuletPhase::failed, turn.time);
  } else {
    // The device was not ready, and no process was started: try again soon.
    const bool was_refused = device_at_fault && gpulet.phase() == GpuletPhase::starting;
    const Duration longest =
        was_refused ? options_.longest_device_retry_delay : options_.longest_restart_delay;
    gpulet.enter(GpuletPhase::restarting, turn.time);
    gpulet.restart_at =
        turn.time + backoff_after(++gpulet.restarts, options_.first_restart_delay, longest);
    schedule_check(gpulet);
  }
  if (!std::exchange(gpulet.reported_restarting, false)) send_report(gpulet.report(), turn);
}

// ---- checks at a time

Time BackendCore::Impl::next_check(const HostedGpulet& gpulet) const {
  if (!gpulet.terminating.ok()) return kNever;  // its ProxyEnded is pending
  switch (gpulet.phase()) {
    case GpuletPhase::restarting:
      return device_faults_[gpulet.device()].ok() ? gpulet.restart_at : kNever;
    case GpuletPhase::starting:
    case GpuletPhase::loading:
      return gpulet.phase_since() + load_bound_of(gpulet);
    case GpuletPhase::ready:
    case GpuletPhase::retiring:
      return gpulet.held.empty() ? kNever : hung_at(gpulet);
    case GpuletPhase::fetching:
    case GpuletPhase::failed:
    case GpuletPhase::gone:
      return kNever;
  }
  return kNever;
}

Duration BackendCore::Impl::load_bound_of(const HostedGpulet& gpulet) const {
  std::uint64_t bytes = 0;
  for (const auto& model : gpulet.models()) {
    const auto known = file_bytes_.find(model.sha256);
    if (known != file_bytes_.end()) bytes += known->second;
  }
  return load_bound(options_.load_timeout, gpulet.models().size(), bytes);
}

Time BackendCore::Impl::hung_at(const HostedGpulet& gpulet) const {
  const double expected_s = to_seconds(gpulet.held.front().expected);
  return gpulet.last_progress +
         std::max(options_.hang_timeout, from_seconds(options_.hang_factor * expected_s));
}

void BackendCore::Impl::check(HostedGpulet& gpulet, Turn turn) {
  if (next_check(gpulet) > turn.time) return;
  if (gpulet.phase() == GpuletPhase::restarting) {
    start(gpulet, turn);
  } else if (gpulet.held.empty()) {
    kill(gpulet, FailureCause::hung,
         {StatusCode::timeout,
          fmt::format("{} did not load its models within {:.0f} s (load_timeout_s of the backend, "
                      "and the time for their files)",
                      name_of(gpulet.id()), to_seconds(load_bound_of(gpulet)))},
         turn);
  } else if (turn.time - hung_at(gpulet) >= kStalled) {
    gpulet.last_progress = turn.time;
  } else {
    const Duration silent = turn.time - gpulet.last_progress;
    kill_and_fail_batches(
        gpulet, FailureCause::hung,
        {StatusCode::timeout,
         fmt::format("{} hung in a batch of '{}': no result for {:f} s", name_of(gpulet.id()),
                     gpulet.held.front().model, to_seconds(silent))},
        turn);
  }
}

void BackendCore::Impl::schedule_check(HostedGpulet& gpulet) {
  const auto time = next_check(gpulet);
  if (time >= gpulet.check_at) return;  // drop_stale_checks() postpones the earlier check
  gpulet.check_at = time;
  checks_.emplace(time, gpulet.id());
}

void BackendCore::Impl::drop_stale_checks() {
  while (!checks_.empty()) {
    const auto [time, id] = checks_.top();
    auto* gpulet = find(id);
    const bool is_due =
        gpulet != nullptr && gpulet->check_at == time && next_check(*gpulet) == time;
    if (is_due) return;
    checks_.pop();
    if (gpulet == nullptr || gpulet->check_at != time) continue;
    gpulet->check_at = kNever;
    schedule_check(*gpulet);
  }
}

// ---- model files

bool BackendCore::Impl::lacks_files(const HostedGpulet& gpulet) const {
  if (is_simulated(gpulet.device())) return false;  // simulated processes load no files
  return std::any_of(gpulet.models().begin(), gpulet.models().end(),
                     [this](const auto& model) { return !files_.contains(model.sha256); });
}

std::set<std::string, std::less<>> BackendCore::Impl::files_in_use() const {
  std::set<std::string, std::less<>> files;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::failed || gpulet.phase() == GpuletPhase::gone) continue;
    for (const auto& model : gpulet.models()) files.insert(model.sha256);
  }
  return files;
}

void BackendCore::Impl::request_files(const HostedGpulet& gpulet, Turn turn) {
  for (const auto& model : gpulet.models()) {
    if (files_.contains(model.sha256) || !fence_.leader()) continue;
    if (requested_files_.contains(model.sha256)) continue;
    if (requested_files_.size() >= kMaxFilesInFlight) return;  // file_done() continues
    requested_files_.emplace(model.sha256, kModelPieceBytes);
    send(ModelPieceRequest{model.sha256, 0}, turn);
  }
}

void BackendCore::Impl::file_done(const std::string& sha256, Turn turn) {
  requested_files_.erase(sha256);
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching) request_files(gpulet, turn);
  }
}

void BackendCore::Impl::on_event(ModelStored& event, Turn turn) {
  files_.insert_or_assign(event.sha256, event.file);
  file_bytes_.insert_or_assign(event.sha256, event.file_bytes);
  for (auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching && !lacks_files(gpulet)) start(gpulet, turn);
  }
  file_done(event.sha256, turn);
}

void BackendCore::Impl::on_event(ModelProgress& event, Turn turn) {
  const auto found = requested_files_.find(event.sha256);
  if (found == requested_files_.end() || !fence_.leader()) return;
  auto& requested = found->second;
  while (requested < event.total_bytes && requested < event.stored_bytes + kMaxBytesInFlight) {
    send(ModelPieceRequest{event.sha256, requested}, turn);
    requested += kModelPieceBytes;
  }
}

void BackendCore::Impl::fail(HostedGpulet& gpulet, Status why, FailureCause cause,
                             const std::string& model, Turn turn) {
  gpulet.status = std::move(why);
  gpulet.cause = cause;
  gpulet.failed_model = model;
  gpulet.enter(GpuletPhase::failed, turn.time);
  send_report(gpulet.report(), turn);
}

void BackendCore::Impl::on_event(ModelFailed& event, Turn turn) {
  for (auto& [id, gpulet] : gpulets_) {
    const auto& models = gpulet.models();
    const auto of_it = std::find_if(models.begin(), models.end(), [&](const auto& model) {
      return model.sha256 == event.sha256;
    });
    if (gpulet.phase() != GpuletPhase::fetching || of_it == models.end()) continue;
    fail(gpulet, event.status.within("model '" + of_it->name + "'"), event.cause, of_it->name,
         turn);
  }
  file_done(event.sha256, turn);
}

// ---- devices

// Nothing on the device continues, and later results from it cannot be trusted.
void BackendCore::Impl::lose_device(const HostedGpulet& witness, const Status& why, Turn turn) {
  const auto device = witness.device();
  const bool all = options_.devices[device].traits.fault == partition::FaultReach::device;
  const Status reason(StatusCode::unavailable, fmt::format("device {} failed under {}: {}", device,
                                                           name_of(witness.id()), why.to_string()));
  for (HostedGpulet* gpulet : on_device_[device]) {
    if (!all && gpulet != &witness) continue;
    if (!has_process(gpulet->phase()) || !gpulet->terminating.ok()) continue;
    gpulet->device_at_fault = all;
    kill_and_fail_batches(*gpulet, FailureCause::device, reason, turn);
  }
}

void BackendCore::Impl::on_event(DeviceHealthReported& event, Turn turn) {
  if (event.device >= device_faults_.size()) return;
  power_[event.device] = event.power;
  Status& fault = device_faults_[event.device];
  if (fault.ok() == event.fault.ok()) return;
  fault = std::move(event.fault);
  send_to_all(DeviceReport{event.device, fault}, turn);
  for (HostedGpulet* gpulet : on_device_[event.device]) {
    if (fault.ok()) {
      if (gpulet->phase() != GpuletPhase::restarting) continue;
      gpulet->restart_at = turn.time;
      schedule_check(*gpulet);
    } else if (gpulet->phase() == GpuletPhase::fetching) {
      fail(*gpulet, fault, FailureCause::device, {}, turn);
    } else if (has_process(gpulet->phase()) && gpulet->terminating.ok()) {
      gpulet->device_at_fault = true;
      kill_and_fail_batches(*gpulet, FailureCause::device, fault, turn);
    }
  }
}

}  // namespace gpulet::node
