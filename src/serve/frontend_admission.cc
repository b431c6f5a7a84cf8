// FrontendCore: what clients ask, and who of them is let in.
#include <algorithm>
#include <utility>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {
namespace {

// The timeout that it asks for is that of the queue and no deadline.
bool is_for_queue(const InferRequest& asked, const ServedModel& model) {
  if (!model.queue || asked.timeout <= Duration::zero()) return false;
  const QueueRules& rules = *model.queue;
  return rules.policy_of(rules.level_of(asked.priority)).allow_timeout_override;
}

}  // namespace

Status FrontendCore::admissible(const InferRequest& request, const ServedModel& model) const {
  const std::string where = "model " + model.name;
  if (request.inputs.size() != model.inputs.size()) {
    return {StatusCode::invalid, where + " takes " + std::to_string(model.inputs.size()) +
                                     " inputs; the request has " +
                                     std::to_string(request.inputs.size())};
  }
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorSpec& wanted = model.inputs[i];
    const TensorSpec& given = request.inputs[i];
    if (!given.name.empty() && given.name != wanted.name) {
      return {StatusCode::invalid, where + ": input " + std::to_string(i) + " is named " +
                                       wanted.name + "; the request calls it " + given.name};
    }
    if (given.type != wanted.type || given.shape != wanted.shape) {
      return {StatusCode::invalid, where + ": input " + wanted.name + " is " + to_string(wanted) +
                                       "; the request has " + to_string(given)};
    }
  }
  if (request.payload.size() != model.input_bytes) {
    return {StatusCode::invalid, where + " takes " + std::to_string(model.input_bytes) +
                                     " bytes of inputs; the request has " +
                                     std::to_string(request.payload.size())};
  }
  if (request.timeout < Duration::zero()) {
    return {StatusCode::invalid, where + ": the timeout must not be negative"};
  }
  return {};
}

std::string FrontendCore::why_unserved(const std::string& name, const NamedModel& known) const {
  if (std::string why = quarantine_.why(name, settled_at_); !why.empty()) return why;
  if (dispatcher_.has_lane(known.current.index)) return {};
  if (known.current_refused()) {
    return "it could not be loaded: " + known.refused->why.message() +
           (known.refused->until == kNever ? "" : "; it is tried again soon");
  }
  if (rolls_out() || plan_pending_ || plan_wanted()) return {};
  if (held_back_.contains(name) || known.stuck)
    return failure_of(known) + "; it is tried again soon";
  const schedule::Unserved* const unserved = unserved_part(name);
  if (unserved == nullptr) return {};
  return known.failure ? failure_of(known) + "; it is tried again soon" : unserved->reason;
}

const schedule::Unserved* FrontendCore::unserved_part(const std::string& name) const {
  const auto found = unserved_.find(name);
  return found == unserved_.end() ? nullptr : &plan_.unserved[found->second];
}

void FrontendCore::on_event(ClientSaid event, Time now, FrontendEffects& effects) {
  if (ask_application(event, now, effects)) return;
  InferRequest& asked = event.request;
  NamedModel* const known = versions_.find(asked.model);
  if (known == nullptr) {
    InferReply reply;
    reply.tag = asked.tag;
    reply.status = {StatusCode::not_found,
                    "model " + asked.model + " is not served here; `gpulet models list` shows " +
                        std::to_string(versions_.named().size()) + " that are"};
    effects.emplace_back(ReplyToClient{event.client, std::move(reply)});
    return;
  }
  const ServedModel& model = dispatcher_.models()[known->current.index];
  const bool for_queue = is_for_queue(asked, model);
  Request request;
  request.id = trace_choice_.next();
  request.client = event.client;
  request.tag = asked.tag;
  request.own_deadline = asked.timeout > Duration::zero() && !for_queue;
  request.deadline = now + (request.own_deadline ? asked.timeout : from_ms(model.slo_ms));
  request.grace = request.own_deadline ? Duration::zero() : options_.late_grace;
  request.trace.arrived = now;
  if (model.queue) {
    request.priority = asked.priority;
    if (for_queue) request.queue_timeout = asked.timeout;
  }

  DispatchOutput output;
  if (const Status status = admissible(asked, model); !status.ok()) {
    dispatcher_.refuse(known->current.index, std::move(request), status, output);
  } else {
    request.input = std::move(asked.payload);
    admit(asked.model, *known, std::move(request), now, output);
  }
  emit(std::move(output), effects);
}

void FrontendCore::admit(const std::string& name, NamedModel& known, Request&& request, Time now,
                         DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  if (draining_) {
    dispatcher_.refuse(index, std::move(request),
                       {StatusCode::unavailable, "the frontend is shutting down; send to another"},
                       output);
    return;
  }
  const bool slept = expect(name, known);
  Result<UnderWay::Place> entered = under_way_.enter(request.input.size());
  if (!entered.ok()) {
    dispatcher_.refuse(index, std::move(request), entered.status(), output);
    return;
  }
  request.place = std::move(entered).value();
  if (!request.own_deadline && dispatcher_.by_executables(index)) {
    request.late_after = request.deadline;
    request.deadline = std::max(request.deadline, now + options_.control.patience);
  }
  place(name, known, std::move(request), slept, now, output);
}

bool FrontendCore::expect(const std::string& name, NamedModel& known) {
  const bool slept = demands_.asleep(known.demand);
  demands_.arrived(known.demand);
  if (dispatcher_.has_ready_lane(known.current.index)) {
    known.waking = false;
    return false;
  }
  // Nobody serves it and no plan expected it: that is acted on now, not when the rate has been
  // estimated.
  if (demands_.rate_planned(known.demand) <= 0 && !known.current_refused() &&
      !quarantine_.holds(name)) {
    want_plan("first request of " + name);
    plan_urgent_ = true;
  }
  return slept;
}

void FrontendCore::place(const std::string& name, NamedModel& known, Request&& request, bool slept,
                         Time now, DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  if (const std::string why = quarantine_.why(name, now); !why.empty()) {
    dispatcher_.refuse(index, std::move(request),
                       {StatusCode::unavailable, "model " + name + " is " + why}, output);
    return;
  }
  if (dispatcher_.has_ready_lane(index)) {
    dispatcher_.enqueue(index, std::move(request), now, output);
    return;
  }
  if (const std::string reason = why_unserved(name, known); !reason.empty()) {
    dispatcher_.refuse(index, std::move(request),
                       {StatusCode::unavailable, "model " + name + " has no place: " + reason},
                       output);
    return;
  }
  known.waking = known.waking || slept;
  if (known.waking && !request.own_deadline) {
    request.late_after = request.due();
    request.deadline = std::max(request.deadline, now + options_.wake_within);
  }
  dispatcher_.enqueue(index, std::move(request), now, output);
}

void FrontendCore::on_event(ClientGone event, Time now, FrontendEffects& effects) {
  dispatcher_.client_gone(event.client);
  ApplicationOutput output;
  applications_.client_gone(event.client, output);
  carry_out(std::move(output), now, effects);
}

}  // namespace gpulet::serve
