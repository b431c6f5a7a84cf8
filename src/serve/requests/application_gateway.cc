#include "serve/requests/application_gateway.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/requests/application_states.h"
#include "serve/requests/request_intake.h"

namespace gpulet::serve {

bool ApplicationGateway::replace(const ApplicationList& applications, Time now) {
  // Models that are not called any more go back to the demand of their own clients.
  std::map<std::string, CallsOfModel> called = calls_of_models(applications);
  const std::vector<ApplicationRunner::Row> before = applications_.rows(now);
  for (const ApplicationRunner::Row& row : before) {
    for (const auto& [name, calls] : calls_of(*row.application)) called.try_emplace(name);
  }
  bool changed = applications.size() != before.size();
  for (const auto& application : applications) {
    const auto known = applications_.find(application->front.name);
    changed = changed || known == nullptr || !(known->graph == application->graph);
  }
  applications_.replace(applications, now);
  for (const auto& [name, calls] : called) {
    const NamedModel* const known = models_.find(name);
    if (known == nullptr) continue;
    models_.plan_for(*known, planned_model(models_.served(*known), calls), now);
  }
  return changed;
}

bool ApplicationGateway::on_request(RequestReceived& event, Time now, FrontendEffects& effects) {
  const std::shared_ptr<const Application> application = applications_.find(event.request.model);
  if (application == nullptr) return false;
  InferRequest& request = event.request;
  const Duration allowed =
      request.timeout > Duration::zero() ? request.timeout : from_ms(application->front.slo_ms);
  ApplicationRunner::Request run;
  run.client = event.client;
  run.tag = request.tag;
  run.deadline = now + allowed;
  run.late_after = now + allowed;
  run.id = traces_.next_id();
  run.priority = request.priority;
  ApplicationOutput output;
  const auto refuse = [&](Status why) {
    applications_.refuse(request.model, std::move(run), std::move(why), now, output);
    carry_out(std::move(output), now, effects);
    return true;
  };
  if (request.synthetic) {
    return refuse({StatusCode::invalid, "application " + request.model +
                                            " takes no requests without bytes; send its inputs, or "
                                            "requests for its models"});
  }
  if (Status status = check_request(request, application->front); !status.ok())
    return refuse(std::move(status));
  if (admission_.refuses()) return refuse(Admission::refusal_while_draining());
  std::vector<NamedModel*> woken;
  for (const auto& [name, calls] : calls_of(*application)) {
    NamedModel* const known = models_.find(name);
    // The owners of a divided model expect the calls whose turns they have.
    if (known == nullptr || !admission_.serves_all_of(name)) continue;
    // Every call is expected now, so that the models of later stages wake while the first one runs.
    bool was_asleep = false;
    for (std::size_t i = 0; i < calls; ++i)
      was_asleep = admission_.expect(name, *known) || was_asleep;
    if (was_asleep || known->waking) woken.push_back(known);
  }
  if (const std::string why = why_unserved(*application, models_); !why.empty()) {
    return refuse(
        {StatusCode::unavailable, "application " + request.model + " cannot be served: " + why});
  }
  Result<InflightLimiter::Permit> permit = admission_.enter(request.payload.size());
  if (!permit.ok()) return refuse(permit.status());
  run.permit = std::move(permit).value();
  if (!woken.empty() && request.timeout == Duration::zero())
    run.deadline = std::max(run.deadline, now + options_.wake_within);
  for (NamedModel* const known : woken) known->waking = true;
  run.answer_by =
      run.deadline + (request.timeout > Duration::zero() ? Duration::zero() : options_.late_grace);
  run.payload = std::move(request.payload);
  applications_.start(request.model, std::move(run), now, output);
  carry_out(std::move(output), now, effects);
  return true;
}

void ApplicationGateway::on_client_disconnected(ClientId client, Time now,
                                                FrontendEffects& effects) {
  ApplicationOutput output;
  applications_.client_gone(client, output);
  carry_out(std::move(output), now, effects);
}

void ApplicationGateway::on_step_completed(StepCompleted event, Time now,
                                           FrontendEffects& effects) {
  ApplicationOutput output;
  applications_.step_done(event.id, std::move(event.outputs), now, output);
  carry_out(std::move(output), now, effects);
}

void ApplicationGateway::answer_overdue(Time now, FrontendEffects& effects) {
  ApplicationOutput output;
  applications_.answer_overdue(now, output);
  carry_out(std::move(output), now, effects);
}

void ApplicationGateway::carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects) {
  for (const CallCancelled& withdrawn : output.cancelled)
    admission_.withdraw(withdrawn.model, kEngine, withdrawn.id, effects);
  for (ApplicationReply& answer : output.answers) {
    if (traces_.samples(answer.record.id, answer.record.trace.arrived))
      effects.emplace_back(RequestTraced{std::move(answer.record)});
    effects.emplace_back(ReplyToClient{answer.client, std::move(answer.reply)});
  }
  for (StepToRun& step : output.steps) effects.emplace_back(std::move(step));
  for (ModelToCall& one : output.calls) call(std::move(one), now, effects);
}

void ApplicationGateway::call(ModelToCall call, Time now, FrontendEffects& effects) {
  Request request;
  request.id = traces_.next_id();
  request.client = kEngine;
  request.tag = call.id;
  request.deadline = call.deadline;
  request.grace = Request::kNoLimit;  // its run is answered in time
  request.trace.arrived = now;
  request.priority = call.priority;
  request.input = std::move(call.input);
  NamedModel* const known = models_.find(call.model);
  // The catalogue may have changed since the run began.
  if (known == nullptr || models_.served(*known).input_bytes != request.input.size()) {
    responses_.call_answers().push_back(
        {std::move(request),
         0,
         {StatusCode::unavailable, "the model was removed or changed meanwhile"},
         {}});
    return;
  }
  admission_.call(call.model, *known, std::move(request), now, effects);
}

void ApplicationGateway::deliver_call_answers(Time now, FrontendEffects& effects) {
  while (!responses_.call_answers().empty()) {
    Answer answer = std::move(responses_.call_answers().front());
    responses_.call_answers().pop_front();
    const RequestTrace& trace = answer.request.trace;
    ApplicationOutput output;
    applications_.answered(
        answer.request.tag,
        {std::move(answer.status), std::move(answer.outputs), trace.executed, trace.batch_size},
        now, output);
    carry_out(std::move(output), now, effects);
  }
}

}  // namespace gpulet::serve
