#include "gpulet/serve/frontend_core.h"

#include <algorithm>
#include <utility>

#include "serve/wording.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kEventsKept = 50;
constexpr Duration kRepeatedWithin = std::chrono::seconds(60);  // then it counts as one event

// What happened within a minute before counts on.
void keep(StatusEvent event, std::deque<StatusEvent>& events) {
  const auto before = std::find_if(events.begin(), events.end(), [&](const StatusEvent& other) {
    if (event.time - other.time > kRepeatedWithin || other.kind != event.kind) return false;
    const bool same_kind =
        event.kind == StatusEvent::Kind::other_rates || event.kind == StatusEvent::Kind::shortage;
    return same_kind || (other.text == event.text && other.warning == event.warning);
  });
  if (before != events.end()) {
    event.count = before->count + 1;
    events.erase(before);
  }
  events.push_back(std::move(event));
  if (events.size() > kEventsKept) events.pop_front();
}

DemandOptions demand_options(const FrontendOptions& options) {
  DemandOptions demands = options.demands;
  // What has gone is given back after about a period.
  demands.slow_time_constant = std::max(2 * demands.time_constant, options.period);
  if (options.keep_plan) demands.growth = 0;
  return demands;
}

}  // namespace

FrontendCore::FrontendCore(FrontendOptions options, Catalogue catalogue, Time now)
    : options_(std::move(options)),
      profiles_(catalogue.profiles != nullptr ? std::move(catalogue.profiles)
                                              : std::make_shared<const profile::ProfileSet>()),
      interference_(std::move(catalogue.interference)),
      under_way_(options_.under_way),
      unloaded_(std::move(catalogue.unloaded)),
      dispatcher_({}, options_.max_queue_per_model, BatchId{(options_.run << kRunShift) + 1},
                  options_.control),
      demands_({}, demand_options(options_)),
      control_(options_.control),
      quarantine_(options_.quarantine),
      applications_(options_.max_queue_per_model),
      trace_choice_(options_.trace_every),
      plan_reasons_{{"the frontend started", {}}},
      last_plan_(now - options_.least_between_plans),
      period_end_(now + options_.period),
      exclusions_(options_.exclusions),
      next_gpulet_((options_.run << kRunShift) + 1),
      next_tick_(now + options_.tick) {
  for (const ServedModel& model : catalogue.models) add_model(model, now);
  replace_applications(catalogue.applications, now);
  demands_.tick(now);
  settle_absence();
}

void FrontendCore::on(FrontendEvent event, Time now, FrontendEffects& effects) {
  std::visit([&](auto& one) { on_event(std::move(one), now, effects); }, event);
  if (!called_.empty()) settle_calls(now, effects);
}

Time FrontendCore::next_wake() const {
  Time wake = std::min(
      {next_tick_, dispatcher_.next_wake(), applications_.next_wake(), control_.next_step()});
  if (has_more_to_do() || plan_next_turn_) wake = std::min(wake, settled_at_);
  if (rollout_) wake = std::min(wake, rollout_->deadline());
  if (plan_wanted() && !rollout_ && gather_until_ > settled_at_)
    wake = std::min(wake, gather_until_);
  return wake;
}

// ---- backends

void FrontendCore::on_event(BackendSaid event, Time now, FrontendEffects& effects) {
  if (const auto breach = breach_of(event.backend, event.message, fleet_, dispatcher_)) {
    refuse_backend(event.backend, *breach, now, effects);
    return;
  }
  fleet_.heard(event.backend, now);
  std::visit([&](auto& message) { heard(event.backend, std::move(message), now, effects); },
             event.message);
}

void FrontendCore::heard(BackendId backend, const Hello& message, Time now,
                         FrontendEffects& effects) {
  if (const auto breach = check_hello(message, fleet_, run_ids())) {
    refuse_backend(backend, *breach, now, effects);
    return;
  }
  const std::vector<GpuletId> disowned = fleet_.join(backend, message, now);
  settle_absence();
  effects.emplace_back(TellBackend{backend, Welcome{options_.heartbeat}});
  note(false,
       "node " + message.node + " joined with " + std::to_string(message.devices.size()) +
           " devices and " + std::to_string(message.gpulets.size()) + " gpulets",
       now, effects);
  for (const DeviceOffer& offer : message.devices) {
    if (profiles_->contains(offer.device.type)) continue;
    note(true,
         "device " + device_name(offer.device.key) + " is left out: no profile named " +
             offer.device.type + "; measure one with gpulet profile run",
         now, effects);
  }
  exclusions_.joined(message.node, message.gpulets.empty(), now);
  for (const GpuletId id : disowned) {
    effects.emplace_back(TellBackend{backend, RetireGpulet{id}});
    note(true,
         name_of(id) + " of node " + message.node + " is retired: another node claimed it before",
         now, effects);
  }
  want_plan("node " + message.node + " joined");
  gather_until_ = std::max(gather_until_, now + options_.gather);
  for (const GpuletReport& told : message.gpulets) {
    const FleetGpulet* const taken = fleet_.find(told.id);
    if (taken == nullptr || taken->backend != backend) continue;
    if (told.state == GpuletState::ready) proven(told.models);
    if (told.state == GpuletState::failed) retire_gpulet(told.id, effects);
  }
  adopt_gpulets(backend, now, effects);
}

void FrontendCore::heard(BackendId backend, const GpuletReport& message, Time now,
                         FrontendEffects& effects) {
  const FleetGpulet* known = fleet_.find(message.id);
  if (known == nullptr || known->backend != backend) {
    fleet_.report(backend, message);  // the end of one that it was told to give up
    return;
  }
  gpulets_changed_ = true;
  const GpuletState before = known->state;
  const FleetGpulet gpulet = *known;
  const schedule::DeviceKey& device = gpulet.device;
  const std::string where = device_name(device);
  fleet_.report(backend, message);

  switch (message.state) {
    case GpuletState::ready:
      dispatcher_.set_ready(message.id, true, now);
      if (rollout_) rollout_->ready(message.id);
      proven(gpulet.models);
      exclusions_.ready(device, message.id);
      if (!message.status.ok())
        note(true, "a gpulet on " + where + ": " + message.status.message(), now, effects);
      if (before == GpuletState::restarting)
        note(false, "a gpulet on " + where + " serves again", now, effects);
      break;
    case GpuletState::preparing:
      break;
    case GpuletState::restarting:
      // What its process held comes back with refusals of its own; the gpulet keeps its place.
      dispatcher_.set_ready(message.id, false, now);
      note(true,
           "a proxy on " + where + " died and is being restarted: " + message.status.message(), now,
           effects);
      break;
    case GpuletState::failed:
    case GpuletState::gone: {
      DispatchOutput output;
      dispatcher_.remove(message.id, now, output);
      emit(std::move(output), effects);
      const bool on_its_way = rollout_ && rollout_->parts().contains(message.id);
      const bool was_wanted = serving_.erase(message.id) > 0 || on_its_way;
      if (rollout_) rollout_->lost(message.id);
      if (was_wanted) {
        stages_.clear();  // what they take away may be needed now
        want_plan("a gpulet on " + where + " is gone");
      }
      if (message.state == GpuletState::failed) {
        retire_gpulet(message.id, effects);
        note(true, "a gpulet on " + where + " failed: " + message.status.message(), now, effects);
        if (!fleet_.takes_gpulets(device)) break;  // no fault of the models
        // What a backend only claims to run says nothing of the models.
        if (gpulet.issued) gpulet_failed(gpulet, message, on_its_way, now, effects);
      }
      break;
    }
  }
}

void FrontendCore::heard(BackendId, const BatchResult& message, Time now,
                         FrontendEffects& effects) {
  DispatchOutput output;
  dispatcher_.completed(message, now, output);
  const std::vector<LostProcess> lost = std::move(output.lost);
  emit(std::move(output), effects);
  for (const LostProcess& one : lost) process_lost(one, now, effects);
}

void FrontendCore::heard(BackendId backend, const Heartbeat& message, Time, FrontendEffects&) {
  fleet_.power_told(backend, message.power);
}

void FrontendCore::heard(BackendId backend, Leaving, Time now, FrontendEffects& effects) {
  const auto found = fleet_.backends().find(backend);
  if (found == fleet_.backends().end()) return;
  fleet_.leaving(backend);
  note(false, "node " + found->second.node + " is stopping: what it serves moves", now, effects);
  want_plan("node " + found->second.node + " is stopping");
  plan_urgent_ = true;
}

// Its gpulets restart when it is back, unless a plan that does without it has come by then.
void FrontendCore::heard(BackendId backend, const DeviceReport& message, Time now,
                         FrontendEffects& effects) {
  const auto device = fleet_.device_seen(backend, message);
  if (!device) return;
  settle_absence();
  const std::string name = "device " + device_name(*device);
  const std::string text =
      name + (message.fault.ok() ? " is back" : " is lost: " + message.fault.message());
  note(!message.fault.ok(), text, now, effects);
  want_plan(name + (message.fault.ok() ? " is back" : " is lost"));
  plan_urgent_ = true;
  if (!message.fault.ok()) stages_.clear();
  if (message.fault.ok() || !rollout_) return;
  gpulets_changed_ = true;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    if (gpulet.device == *device) rollout_->lost(id);
  }
}

void FrontendCore::lose_backend(BackendId backend, const Status& reason, Time now,
                                FrontendEffects& effects) {
  const auto found = fleet_.backends().find(backend);
  if (found == fleet_.backends().end()) return;
  const std::string node = found->second.node;
  gpulets_changed_ = true;
  stages_.clear();
  DispatchOutput output;
  for (const GpuletId id : fleet_.leave(backend)) {
    dispatcher_.remove(id, now, output);
    serving_.erase(id);
    if (rollout_) rollout_->lost(id);
  }
  settle_absence();
  emit(std::move(output), effects);
  exclusions_.left(node, reason, now);
  note(true, "lost node " + node + ": " + reason.message(), now, effects);
  want_plan("node " + node + " is lost");
}

std::string FrontendCore::why_nothing_serves() const {
  if (!fleet_.has_backend()) return "no backend is connected";
  if (!fleet_.has_usable_device()) return "no device of the connected backends can be used";
  return {};
}

void FrontendCore::settle_absence() {
  std::string why = why_nothing_serves();
  dispatcher_.set_absence(why.empty() ? Status() : Status(StatusCode::unavailable, std::move(why)));
}

void FrontendCore::on_event(const BackendGone& event, Time now, FrontendEffects& effects) {
  lose_backend(event.backend, event.reason, now, effects);
}

// ---- time

void FrontendCore::on_event(Settle, Time now, FrontendEffects& effects) {
  settled_at_ = now;
  plan_next_turn_ = catalogue_.has_value();  // either of the two makes a long turn by itself
  if (catalogue_) take_in_catalogue(now, effects);
  if (!successions_.empty() || sweep_goes_on_) continue_successions(now, effects);
  if (now >= next_tick_) tick(now, effects);
  if (now >= control_.next_step()) control_cores(now, effects);
  advance_rollout(now, effects);
  if (!plan_next_turn_) plan_if_wanted(now, effects);
  ApplicationOutput overdue;
  applications_.answer_overdue(now, overdue);
  carry_out(std::move(overdue), now, effects);
  DispatchOutput output;
  dispatcher_.pump(now, output);
  emit(std::move(output), effects);
  if (draining_ && !drained_ && dispatcher_.idle() && applications_.idle()) {
    drained_ = true;
    effects.emplace_back(Drained{});
  }
}

void FrontendCore::on_event(TraceEvery event, Time, FrontendEffects&) {
  trace_choice_.choose_every(event.every);
}

void FrontendCore::on_event(TraceUntil event, Time now, FrontendEffects&) {
  trace_choice_.choose_all(now, event.time);
}

void FrontendCore::on_event(Drain, Time now, FrontendEffects& effects) {
  if (draining_) return;
  draining_ = true;
  note(false, "draining: no new requests, answering what is in flight", now, effects);
}

void FrontendCore::tick(Time now, FrontendEffects& effects) {
  const Duration since_last = now - (next_tick_ - options_.tick);
  next_tick_ = now + options_.tick;
  demands_.tick(now);
  applications_.tick(now);
  std::erase_if(busy_, [this](const auto& entry) { return !serving_.contains(entry.first); });
  for (const auto& [id, planned] : serving_) {
    Busy& busy = busy_[id];
    const Duration executed = dispatcher_.statistics(id).executed;
    busy.fraction =
        std::min(1.0, to_seconds(executed - busy.executed_at_tick) / to_seconds(since_last));
    busy.executed_at_tick = executed;
  }

  for (const BackendId silent : fleet_.silent_since(now - 4 * options_.heartbeat)) {
    const Status reason(StatusCode::timeout, "nothing was heard from it for four heartbeats");
    effects.emplace_back(DropBackend{silent, reason});
    lose_backend(silent, reason, now, effects);
  }
  for (const auto& [id, backend] : fleet_.backends())
    effects.emplace_back(TellBackend{id, Heartbeat{}});

  if (auto strayed = demands_.above_plan())
    want_plan(std::move(strayed->told), std::move(strayed->model));
  const bool period_over = now >= period_end_;
  if (period_over || !plan_.schedulable()) {
    if (auto strayed = demands_.below_plan(plan_.schedulable()))
      want_plan(std::move(strayed->told), std::move(strayed->model));
  }
  if (period_over) {
    period_end_ = now + options_.period;
    if (!plan_.schedulable()) want_plan("not every rate is served");
    if (last_plan_refused_) want_plan("the last plan was refused");
  }
  const std::size_t held =
      std::erase_if(held_back_, [now](const auto& entry) { return entry.second <= now; });
  if (held > 0) want_plan("models that failed are tried again");
  for (const std::string& name : exclusions_.expire(now)) want_plan(name + " is tried again");
  end_quarantines(now, effects);
  retry_refused(now, effects);
  refuse_wakers(now, effects);
  retire_unwanted(now, effects);
  DispatchOutput output;
  sweep_versions(now, output);
  emit(std::move(output), effects);
}

// ---- out

void FrontendCore::emit(DispatchOutput&& output, FrontendEffects& effects) {
  for (BatchToSend& one : output.batches) {
    effects.emplace_back(TellBackend{one.backend, std::move(one.batch)});
  }
  for (Answer& one : output.answers) {
    if (trace_choice_.chosen(one.request.id, one.request.trace.arrived))
      effects.emplace_back(Traced{record_of(one)});
    if (one.request.client == kEngine) {
      called_.push_back(std::move(one));
      continue;
    }
    InferReply reply;
    reply.tag = one.request.tag;
    reply.status = std::move(one.status);
    const RequestTrace& trace = one.request.trace;
    if (reply.status.ok()) {
      reply.outputs = dispatcher_.models()[one.model].outputs;
      reply.queued = trace.dispatched - trace.arrived + trace.queued_at_backend;
      reply.executed = trace.executed;
    }
    reply.payload = std::move(one.outputs);
    reply.batch_size = trace.batch_size;
    effects.emplace_back(ReplyToClient{one.request.client, std::move(reply)});
  }
}

observe::RequestTraceRecord FrontendCore::record_of(const Answer& answer) const {
  const Request& request = answer.request;
  observe::RequestTraceRecord record;
  record.id = request.id;
  record.model = dispatcher_.models()[answer.model].name;
  record.client = request.client;
  record.tag = request.tag;
  record.trace = request.trace;
  record.due = request.due();
  record.outcome = answer.status.code();
  if (const FleetGpulet* const gpulet = fleet_.find(request.trace.gpulet)) {
    record.node = gpulet->device.node;
    record.device = gpulet->device.device;
    record.share = gpulet->size;
  }
  return record;
}

void FrontendCore::note(bool warning, std::string text, Time now, FrontendEffects& effects,
                        StatusEvent::Kind kind) {
  keep({now, text, warning, kind}, events_);
  effects.emplace_back(Note{warning, std::move(text)});
}

void FrontendCore::note_of_plan(bool warning, std::string text, Time now,
                                FrontendEffects& effects) {
  StatusEvent event{now, text, warning};
  event.kind = record_.decision()->moves_gpulets() ? StatusEvent::Kind::reorganisation
                                                   : StatusEvent::Kind::other_rates;
  event.plan = record_.decision()->number;
  keep(std::move(event), events_);
  effects.emplace_back(Note{warning, std::move(text)});
}

}  // namespace gpulet::serve
