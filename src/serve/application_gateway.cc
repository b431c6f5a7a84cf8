#include "serve/application_gateway.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

namespace gpulet::serve {

std::map<std::string, std::size_t> ApplicationGateway::calls_of(const Application& application) {
  std::map<std::string, std::size_t> calls;
  for (const config::ApplicationNode& node : application.graph.nodes) {
    if (const auto* call = std::get_if<config::ModelCall>(&node.work)) ++calls[call->model];
  }
  return calls;
}

bool ApplicationGateway::replace(const ApplicationList& applications, Time now) {
  // Models that are not called any more go back to the demand of their own clients.
  std::map<std::string, CallsOfModel> called = calls_of_models(applications);
  const std::vector<ApplicationRunner::Row> before = core_.applications.rows(now);
  for (const ApplicationRunner::Row& row : before) {
    for (const auto& [name, calls] : calls_of(*row.application)) called.try_emplace(name);
  }
  bool changed = applications.size() != before.size();
  for (const auto& application : applications) {
    const auto known = core_.applications.find(application->front.name);
    changed = changed || known == nullptr || !(known->graph == application->graph);
  }
  core_.applications.replace(applications, now);
  for (const auto& [name, calls] : called) {
    const NamedModel* const known = core_.models.find(name);
    if (known == nullptr) continue;
    core_.demands.change(known->demand, planned_model(core_.models.served(*known), calls), now);
  }
  return changed;
}

// ---- requests

bool ApplicationGateway::on_request(RequestReceived& event, Time now, FrontendEffects& effects) {
  const std::shared_ptr<const Application> application =
      core_.applications.find(event.request.model);
  if (application == nullptr) return false;
  InferRequest& request = event.request;
  const Duration given =
      request.timeout > Duration::zero() ? request.timeout : from_ms(application->front.slo_ms);
  ApplicationRunner::Request run;
  run.client = event.client;
  run.tag = request.tag;
  run.deadline = now + given;
  run.late_after = now + given;
  run.id = core_.traces.next_id();
  run.priority = request.priority;
  ApplicationOutput output;
  const auto refuse = [&](Status why) {
    core_.applications.refuse(request.model, run, std::move(why), now, output);
    carry_out(std::move(output), now, effects);
    return true;
  };
  if (Status status = check_request(request, application->front); !status.ok())
    return refuse(std::move(status));
  if (core_.admission.draining()) return refuse(Admission::refusal_while_draining());
  std::vector<NamedModel*> woken;
  for (const auto& [name, calls] : calls_of(*application)) {
    NamedModel* const known = core_.models.find(name);
    if (known == nullptr) continue;
    // Every call is expected now, so that the models of later stages wake while the first one runs.
    bool was_asleep = false;
    for (std::size_t i = 0; i < calls; ++i)
      was_asleep = core_.admission.expect(name, *known) || was_asleep;
    if (was_asleep || known->waking) woken.push_back(known);
  }
  if (const std::string why = why_unserved(*application); !why.empty()) {
    return refuse(
        {StatusCode::unavailable, "application " + request.model + " has no place: " + why});
  }
  Result<InflightLimiter::Permit> permit = core_.limiter.enter(request.payload.size());
  if (!permit.ok()) return refuse(permit.status());
  run.place = std::move(permit).value();
  if (!woken.empty() && request.timeout == Duration::zero())
    run.deadline = std::max(run.deadline, now + options_.wake_within);
  for (NamedModel* const known : woken) known->waking = true;
  run.answer_by =
      run.deadline + (request.timeout > Duration::zero() ? Duration::zero() : options_.late_grace);
  run.payload = std::move(request.payload);
  core_.applications.start(request.model, std::move(run), now, output);
  carry_out(std::move(output), now, effects);
  return true;
}

void ApplicationGateway::on_client_disconnected(ClientId client, Time now,
                                                FrontendEffects& effects) {
  ApplicationOutput output;
  core_.applications.client_gone(client, output);
  carry_out(std::move(output), now, effects);
}

void ApplicationGateway::on_step_completed(StepCompleted event, Time now,
                                           FrontendEffects& effects) {
  ApplicationOutput output;
  core_.applications.step_done(event.id, std::move(event.outputs), now, output);
  carry_out(std::move(output), now, effects);
}

void ApplicationGateway::answer_overdue(Time now, FrontendEffects& effects) {
  ApplicationOutput output;
  core_.applications.answer_overdue(now, output);
  carry_out(std::move(output), now, effects);
}

// ---- calls

void ApplicationGateway::carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects) {
  for (const CallCancelled& withdrawn : output.cancelled) {
    if (const NamedModel* known = core_.models.find(withdrawn.model))
      core_.dispatcher.withdraw(known->current.index, kEngine, withdrawn.id);
  }
  for (ApplicationReply& answer : output.answers) {
    if (core_.traces.samples(answer.record.id, answer.record.trace.arrived))
      effects.emplace_back(RequestTraced{std::move(answer.record)});
    effects.emplace_back(ReplyToClient{answer.client, std::move(answer.reply)});
  }
  for (StepToRun& step : output.steps) effects.emplace_back(std::move(step));
  for (ModelToCall& one : output.calls) call(std::move(one), now, effects);
}

void ApplicationGateway::call(ModelToCall call, Time now, FrontendEffects& effects) {
  Request request;
  request.id = core_.traces.next_id();
  request.client = kEngine;
  request.tag = call.id;
  request.deadline = call.deadline;
  request.grace = Request::kNoLimit;  // its run is answered in time
  request.trace.arrived = now;
  request.priority = call.priority;
  request.input = std::move(call.input);
  NamedModel* const known = core_.models.find(call.model);
  // The catalogue may have changed since the run began.
  if (known == nullptr || core_.models.served(*known).input_bytes != request.input.size()) {
    core_.responses.call_answers().push_back(
        {std::move(request),
         0,
         {StatusCode::unavailable, "the model was removed or changed meanwhile"},
         {}});
    return;
  }
  DispatchOutput output;
  core_.admission.enqueue(call.model, *known, std::move(request), false, now, output);
  core_.responses.write(std::move(output), effects);
}

void ApplicationGateway::deliver_call_answers(Time now, FrontendEffects& effects) {
  while (!core_.responses.call_answers().empty()) {
    Answer answer = std::move(core_.responses.call_answers().front());
    core_.responses.call_answers().pop_front();
    const RequestTrace& trace = answer.request.trace;
    ApplicationOutput output;
    core_.applications.answered(
        answer.request.tag,
        {std::move(answer.status), std::move(answer.outputs), trace.executed, trace.batch_size},
        now, output);
    carry_out(std::move(output), now, effects);
  }
}

// ---- states

std::string ApplicationGateway::why_unserved(const Application& application) const {
  if (!application.split.unmet.empty()) return application.split.unmet;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = core_.models.find(name);
    const std::string reason =
        known == nullptr ? "it is not served here" : core_.models.why_unserved(name, *known);
    if (!reason.empty()) return "model " + name + ": " + reason;
  }
  return {};
}

// That of the model that is furthest from serving.
ModelState ApplicationGateway::state_of(const Application& application) const {
  if (!application.split.unmet.empty()) return ModelState::unavailable;
  bool all_ready = true;
  bool any_loading = false;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = core_.models.find(name);
    const ModelState state =
        known == nullptr ? ModelState::unavailable : core_.models.state_of(name, *known);
    if (state == ModelState::unavailable) return state;
    all_ready = all_ready && state == ModelState::ready;
    any_loading = any_loading || state == ModelState::loading;
  }
  if (all_ready) return ModelState::ready;
  return any_loading ? ModelState::loading : ModelState::idle;
}

}  // namespace gpulet::serve
