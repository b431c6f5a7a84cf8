// BackendCore: the gpulets' life.
#include <algorithm>
#include <utility>

#include "gpulet/serve/backend_core.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {
namespace {

// Woken so much later than it asked, this backend did not run itself, and results may lie in its
// sockets: proxies get as long again.
constexpr Duration kOverslept = std::chrono::milliseconds(500);

// Of a file: asked for and not yet on the disk.
constexpr std::uint64_t kMostUnderWay = 8 * kModelPieceBytes;
// Files that come at the same time: with the bound above, what the shell must have room for.
constexpr std::size_t kMostFilesUnderWay = 4;

}  // namespace

HostedGpulet* BackendCore::find(GpuletId gpulet) {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? nullptr : &found->second;
}

void BackendCore::let_go(HostedGpulet& gpulet, Now now) {
  gpulet.enter(GpuletPhase::gone, now.time);
  gpulet.status = {};
  some_gone_ = true;
  tell(gpulet.report(), now);
}

void BackendCore::erase_gone() {
  for (auto& neighbours : on_device_) {
    std::erase_if(neighbours, [](const auto* one) { return one->phase() == GpuletPhase::gone; });
  }
  std::erase_if(gpulets_,
                [](const auto& entry) { return entry.second.phase() == GpuletPhase::gone; });
  some_gone_ = false;
}

void BackendCore::plan_look(HostedGpulet& gpulet) {
  const auto time = next_look(gpulet);
  if (time >= gpulet.look) return;  // it is looked at before; settle_looks moves that
  gpulet.look = time;
  looks_.emplace(time, gpulet.id());
}

void BackendCore::settle_looks() {
  while (!looks_.empty()) {
    const auto [time, id] = looks_.top();
    auto* gpulet = find(id);
    const bool is_due = gpulet != nullptr && gpulet->look == time && next_look(*gpulet) == time;
    if (is_due) return;
    looks_.pop();
    if (gpulet == nullptr || gpulet->look != time) continue;
    gpulet->look = kNever;
    plan_look(*gpulet);
  }
}

bool BackendCore::is_simulated(std::uint32_t device) const {
  return options_.all_simulated || options_.devices[device].device.partitioning == "simulated";
}

void BackendCore::on_event(GpuletAsked& event, Now now) {
  last_heard_ = now.time;
  if (const auto* known = find(event.create.id)) {  // asked twice: the answer is how it stands
    tell(known->report(), now);
    return;
  }
  if (shutting_down_) {
    report_refused(event.create, FailureCause::unknown,
                   {StatusCode::unavailable, "this backend is shutting down"}, now);
    return;
  }
  auto possible = check_device(event.create);
  auto made =
      possible.ok() ? HostedGpulet::create(event.create, now.time) : Result<HostedGpulet>(possible);
  if (!made.ok()) {
    const bool faulty =
        event.create.device < device_faults_.size() && !device_faults_[event.create.device].ok();
    report_refused(event.create, faulty ? FailureCause::device : FailureCause::unknown,
                   made.status(), now);
    return;
  }
  for (const auto& model : event.create.models)
    files_.erase(model.sha256);  // what the store has now, counts
  files_.insert(event.stored.begin(), event.stored.end());
  auto& gpulet = gpulets_.emplace(event.create.id, std::move(made).value()).first->second;
  auto& neighbours = on_device_[gpulet.device()];
  const auto by_id = [](const auto* a, const auto* b) { return a->id() < b->id(); };
  neighbours.insert(std::upper_bound(neighbours.begin(), neighbours.end(), &gpulet, by_id),
                    &gpulet);
  tell(gpulet.report(), now);
  if (lacks_files(gpulet)) {
    want_missing_files(gpulet, now);
  } else {
    start(gpulet, now);
  }
}

void BackendCore::report_refused(const CreateGpulet& asked, FailureCause cause, const Status& why,
                                 Now now) {
  GpuletReport report;
  report.id = asked.id;
  report.device = asked.device;
  report.size = asked.size;
  report.instance = asked.instance;
  report.state = GpuletState::failed;
  report.status = why;
  report.cause = cause;
  tell(std::move(report), now);
}

Status BackendCore::check_device(const CreateGpulet& asked) const {
  if (asked.device >= options_.devices.size()) {
    return {StatusCode::invalid, "node '" + options_.node + "' has " +
                                     std::to_string(options_.devices.size()) +
                                     " devices; asked for number " + std::to_string(asked.device)};
  }
  if (options_.devices[asked.device].device.mig.has_value() != asked.instance.has_value()) {
    return {StatusCode::invalid,
            "device " + std::to_string(asked.device) + " of node '" + options_.node +
                (asked.instance ? "' is not divided by MIG; asked for an instance"
                                : "' is divided by MIG; asked for a gpulet in no instance")};
  }
  if (const auto& fault = device_faults_[asked.device]; !fault.ok()) return fault;
  if (asked.part.service == schedule::Service::controlled) return check_controlled(asked);
  if (is_simulated(asked.device)) {
    for (const auto& model : asked.models) {
      auto possible = simulated_[asked.device].can_run(model.name, 1, asked.size);
      if (!possible.ok()) return possible;
    }
  }
  return {};
}

bool BackendCore::lacks_files(const HostedGpulet& gpulet) const {
  if (is_simulated(gpulet.device())) return false;  // its proxies compute nothing
  return std::any_of(gpulet.models().begin(), gpulet.models().end(),
                     [this](const auto& model) { return !files_.contains(model.sha256); });
}

std::set<std::string, std::less<>> BackendCore::files_in_use() const {
  std::set<std::string, std::less<>> files;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::failed || gpulet.phase() == GpuletPhase::gone) continue;
    for (const auto& model : gpulet.models()) files.insert(model.sha256);
  }
  return files;
}

void BackendCore::want_missing_files(const HostedGpulet& gpulet, Now now) {
  for (const auto& model : gpulet.models()) {
    if (files_.contains(model.sha256) || !connected_) continue;
    if (asked_for_.contains(model.sha256)) continue;
    if (asked_for_.size() >= kMostFilesUnderWay) return;  // one that is done makes room
    asked_for_.emplace(model.sha256, kModelPieceBytes);
    tell(ModelWanted{model.sha256, 0}, now);
  }
}

void BackendCore::file_done(const std::string& sha256, Now now) {
  asked_for_.erase(sha256);
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching) want_missing_files(gpulet, now);
  }
}

void BackendCore::on_event(ModelProgress& event, Now now) {
  const auto found = asked_for_.find(event.sha256);
  if (found == asked_for_.end() || !connected_) return;
  auto& asked = found->second;
  while (asked < event.total_bytes && asked < event.stored_bytes + kMostUnderWay) {
    tell(ModelWanted{event.sha256, asked}, now);
    asked += kModelPieceBytes;
  }
}

LoadModels BackendCore::loading_order(const HostedGpulet& gpulet) const {
  auto order = gpulet.loading_order(files_);
  const auto& type = options_.devices[gpulet.device()].device.type;
  for (std::size_t i = 0; i < order.models.size(); ++i) {
    const auto known = forms_.find({type, version_of(gpulet.models()[i])});
    if (known != forms_.end()) order.models[i].form = known->second;
  }
  return order;
}

void BackendCore::remember_forms(const HostedGpulet& gpulet,
                                 const std::vector<std::uint32_t>& forms) {
  const auto& type = options_.devices[gpulet.device()].device.type;
  for (std::size_t i = 0; i < std::min(forms.size(), gpulet.models().size()); ++i) {
    forms_.insert_or_assign({type, version_of(gpulet.models()[i])}, forms[i]);
  }
}

void BackendCore::on_event(ModelStored& event, Now now) {
  files_.insert_or_assign(event.sha256, event.file);
  for (auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching && !lacks_files(gpulet)) start(gpulet, now);
  }
  file_done(event.sha256, now);
}

void BackendCore::on_event(ModelFailed& event, Now now) {
  for (auto& [id, gpulet] : gpulets_) {
    const auto& models = gpulet.models();
    const auto of_it = std::find_if(models.begin(), models.end(), [&](const auto& model) {
      return model.sha256 == event.sha256;
    });
    if (gpulet.phase() != GpuletPhase::fetching || of_it == models.end()) continue;
    gpulet.status = event.status.within("model '" + of_it->name + "'");
    gpulet.cause = event.cause;
    gpulet.failed_model = of_it->name;
    gpulet.enter(GpuletPhase::failed, now.time);
    tell(gpulet.report(), now);
  }
  file_done(event.sha256, now);
}

void BackendCore::start(HostedGpulet& gpulet, Now now) {
  gpulet.enter(GpuletPhase::starting, now.time);
  gpulet.restart_at = kNever;
  plan_look(gpulet);
  now.effects.push_back(StartGpulet{
      gpulet.id(), gpulet.device(), gpulet.size(), loading_order(gpulet), gpulet.input_capacity(),
      gpulet.output_capacity(), gpulet.memory_mb(), gpulet.instance(), gpulet.controlled()});
}

void BackendCore::on_event(ProxyStarted& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet != nullptr && gpulet->phase() == GpuletPhase::starting)
    gpulet->enter(GpuletPhase::loading, now.time);
}

void BackendCore::on_event(ProxyLoaded& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->doomed.ok()) return;
  if (event.device == partition::DeviceHealth::lost) {
    lose_device(*gpulet, event.status, now);
    return;
  }
  if (!event.status.ok()) {
    gpulet->blameless = event.device == partition::DeviceHealth::not_ready;
    kill(*gpulet, gpulet->blameless ? FailureCause::device : event.cause, event.status, now);
    gpulet->failed_model = std::move(event.failed_model);
    return;
  }
  gpulet->found_share = event.found;
  remember_forms(*gpulet, event.forms);
  now.effects.push_back(ActivateShare{event.gpulet});
}

void BackendCore::on_event(ShareActive& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->doomed.ok()) return;
  if (!event.status.ok()) {
    kill(*gpulet, event.cause, event.status, now);
    return;
  }
  gpulet->enter(GpuletPhase::ready, now.time);
  gpulet->load_failures = 0;
  gpulet->status = {};
  tell(gpulet->report(), now);
  if (gpulet->controlled() && gpulet->cores)
    now.effects.push_back(AdjustCores{event.gpulet, *gpulet->cores});
}

void BackendCore::kill(HostedGpulet& gpulet, FailureCause cause, Status why, Now now) {
  now.effects.push_back(KillProxy{gpulet.id(), why});
  gpulet.doomed = std::move(why);
  gpulet.cause = cause;
  gpulet.failed_model.clear();
}

// Nothing that runs on the device goes on, and nothing that it answers from now on can be believed.
void BackendCore::lose_device(const HostedGpulet& witness, const Status& why, Now now) {
  const auto device = witness.device();
  const bool all = options_.devices[device].traits.fault == partition::FaultReach::device;
  const Status reason(StatusCode::unavailable, "device " + std::to_string(device) +
                                                   " failed under " + name_of(witness.id()) + ": " +
                                                   why.to_string());
  for (HostedGpulet* gpulet : on_device_[device]) {
    if (!all && gpulet != &witness) continue;
    if (!has_process(gpulet->phase()) || !gpulet->doomed.ok()) continue;
    gpulet->blameless = all;
    end_for_device(*gpulet, reason, now);
  }
}

void BackendCore::end_at_once(HostedGpulet& gpulet, FailureCause cause, const Status& why,
                              Now now) {
  kill(gpulet, cause, why, now);
  if (gpulet.phase() == GpuletPhase::ready) {
    // Now, and not when the process has ended: what it held must not come back to it.
    gpulet.told_restarting = true;
    tell(gpulet.report(), now);
  }
  answer_all_unavailable(gpulet, why, cause, {}, now);
}

void BackendCore::on_event(DeviceSeen& event, Now now) {
  if (event.device >= device_faults_.size()) return;
  power_[event.device] = event.power;
  Status& fault = device_faults_[event.device];
  if (fault.ok() == event.fault.ok()) return;
  fault = std::move(event.fault);
  tell(DeviceReport{event.device, fault}, now);
  for (HostedGpulet* gpulet : on_device_[event.device]) {
    if (fault.ok()) {
      if (gpulet->phase() != GpuletPhase::restarting) continue;
      gpulet->restart_at = now.time;
      plan_look(*gpulet);
    } else if (gpulet->phase() == GpuletPhase::fetching) {
      gpulet->status = fault;
      gpulet->cause = FailureCause::device;
      gpulet->failed_model.clear();
      gpulet->enter(GpuletPhase::failed, now.time);
      tell(gpulet->report(), now);
    } else if (has_process(gpulet->phase()) && gpulet->doomed.ok()) {
      gpulet->blameless = true;
      end_for_device(*gpulet, fault, now);
    }
  }
}

void BackendCore::on_event(AssignGpulet& event, Now now) {
  last_heard_ = now.time;
  if (auto* gpulet = find(event.id)) gpulet->assign(std::move(event.part));
}

void BackendCore::on_event(RetireGpulet& event, Now now) {
  last_heard_ = now.time;
  if (auto* gpulet = find(event.id)) {
    retire(*gpulet, now);
    return;
  }
  GpuletReport report;
  report.id = event.id;
  report.state = GpuletState::gone;
  tell(std::move(report), now);
}

void BackendCore::retire(HostedGpulet& gpulet, Now now) {
  const auto phase = gpulet.phase();
  if (phase == GpuletPhase::retiring) return;
  if (!has_process(phase)) {
    let_go(gpulet, now);
    return;
  }
  gpulet.enter(GpuletPhase::retiring, now.time);
  if (phase == GpuletPhase::ready) {
    now.effects.push_back(FinishProxy{gpulet.id()});
  } else {
    // It holds no batches, and would first load to the end: seconds that somebody waits for.
    kill(gpulet, FailureCause::unknown,
         {StatusCode::cancelled, "no longer wanted before it had loaded"}, now);
  }
}

Time BackendCore::next_look(const HostedGpulet& gpulet) const {
  if (!gpulet.doomed.ok()) return kNever;  // its end will be told
  switch (gpulet.phase()) {
    case GpuletPhase::restarting:
      return device_faults_[gpulet.device()].ok() ? gpulet.restart_at : kNever;
    case GpuletPhase::starting:
    case GpuletPhase::loading:
      return gpulet.phase_since() + options_.load_timeout;
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

Time BackendCore::hung_at(const HostedGpulet& gpulet) const {
  const double expected_s = to_seconds(gpulet.held.front().expected);
  return gpulet.last_progress +
         std::max(options_.hang_timeout, from_seconds(options_.hang_factor * expected_s));
}

void BackendCore::look_at(HostedGpulet& gpulet, Now now) {
  if (next_look(gpulet) > now.time) return;
  if (gpulet.phase() == GpuletPhase::restarting) {
    start(gpulet, now);
  } else if (gpulet.held.empty()) {
    kill(gpulet, FailureCause::hung,
         {StatusCode::timeout, name_of(gpulet.id()) + " did not load within " +
                                   std::to_string(to_seconds(options_.load_timeout)) + " s"},
         now);
  } else if (now.time - hung_at(gpulet) >= kOverslept) {
    gpulet.last_progress = now.time;
  } else {
    const Duration silent = now.time - gpulet.last_progress;
    end_at_once(gpulet, FailureCause::hung,
                {StatusCode::timeout, name_of(gpulet.id()) + " hung over a batch of '" +
                                          gpulet.held.front().model + "': no answer for " +
                                          std::to_string(to_seconds(silent)) + " s"},
                now);
  }
}

}  // namespace gpulet::serve
