// FrontendCore: requests for applications, and the calls that they make.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {
namespace {

// The models that the graph calls, each with the number of its calls.
std::map<std::string, std::size_t> calls_of(const Application& application) {
  std::map<std::string, std::size_t> calls;
  for (const config::ApplicationNode& node : application.graph.nodes) {
    if (const auto* call = std::get_if<config::ModelCall>(&node.work)) ++calls[call->model];
  }
  return calls;
}

}  // namespace

bool FrontendCore::replace_applications(const ApplicationList& applications, Time now) {
  // Those that were called go back to what their own clients ask of them.
  std::map<std::string, CallsOfModel> called = calls_of_models(applications);
  const std::vector<Applications::Row> before = applications_.rows(now);
  for (const Applications::Row& row : before) {
    for (const auto& [name, calls] : calls_of(*row.application)) called.try_emplace(name);
  }
  bool changed = applications.size() != before.size();
  for (const auto& application : applications) {
    const auto known = applications_.find(application->front.name);
    changed = changed || known == nullptr || !(known->graph == application->graph);
  }
  applications_.replace(applications, now);
  for (const auto& [name, calls] : called) {
    const NamedModel* const known = versions_.find(name);
    if (known == nullptr) continue;
    const ServedModel& own = dispatcher_.models()[known->current.index];
    demands_.change(known->demand, planned_model(own, calls), now);
  }
  return changed;
}

std::string FrontendCore::why_unserved(const Application& application) const {
  if (!application.split.unmet.empty()) return application.split.unmet;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = versions_.find(name);
    const std::string reason =
        known == nullptr ? "it is not served here" : why_unserved(name, *known);
    if (!reason.empty()) return "model " + name + ": " + reason;
  }
  return {};
}

bool FrontendCore::ask_application(ClientSaid& event, Time now, FrontendEffects& effects) {
  const std::shared_ptr<const Application> application = applications_.find(event.request.model);
  if (application == nullptr) return false;
  InferRequest& request = event.request;
  const Duration given =
      request.timeout > Duration::zero() ? request.timeout : from_ms(application->front.slo_ms);
  Applications::Asked asked;
  asked.client = event.client;
  asked.tag = request.tag;
  asked.deadline = now + given;
  asked.late_after = now + given;
  asked.id = trace_choice_.next();
  asked.priority = request.priority;
  ApplicationOutput output;
  const auto refuse = [&](Status why) {
    applications_.refuse(request.model, asked, std::move(why), now, output);
    carry_out(std::move(output), now, effects);
    return true;
  };
  if (Status status = admissible(request, application->front); !status.ok())
    return refuse(std::move(status));
  if (draining_)
    return refuse({StatusCode::unavailable, "the frontend is shutting down; send to another"});
  std::vector<NamedModel*> woken;
  for (const auto& [name, calls] : calls_of(*application)) {
    NamedModel* const known = versions_.find(name);
    if (known == nullptr) continue;
    // All that it will call, now: the later stages wake while the first one runs.
    bool slept = false;
    for (std::size_t i = 0; i < calls; ++i) slept = expect(name, *known) || slept;
    if (slept || known->waking) woken.push_back(known);
  }
  if (const std::string why = why_unserved(*application); !why.empty()) {
    return refuse(
        {StatusCode::unavailable, "application " + request.model + " has no place: " + why});
  }
  Result<UnderWay::Place> entered = under_way_.enter(request.payload.size());
  if (!entered.ok()) return refuse(entered.status());
  asked.place = std::move(entered).value();
  if (!woken.empty() && request.timeout == Duration::zero())
    asked.deadline = std::max(asked.deadline, now + options_.wake_within);
  for (NamedModel* const known : woken) known->waking = true;
  asked.answer_by = asked.deadline +
                    (request.timeout > Duration::zero() ? Duration::zero() : options_.late_grace);
  asked.payload = std::move(request.payload);
  applications_.start(request.model, std::move(asked), now, output);
  carry_out(std::move(output), now, effects);
  return true;
}

void FrontendCore::on_event(StepDone event, Time now, FrontendEffects& effects) {
  ApplicationOutput output;
  applications_.step_done(event.id, std::move(event.outputs), now, output);
  carry_out(std::move(output), now, effects);
}

void FrontendCore::carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects) {
  for (const CallWithdrawn& withdrawn : output.withdrawn) {
    if (const NamedModel* known = versions_.find(withdrawn.model))
      dispatcher_.withdraw(known->current.index, kEngine, withdrawn.id);
  }
  for (ApplicationAnswer& answer : output.answers) {
    if (trace_choice_.chosen(answer.record.id, answer.record.trace.arrived))
      effects.emplace_back(Traced{std::move(answer.record)});
    effects.emplace_back(ReplyToClient{answer.client, std::move(answer.reply)});
  }
  for (StepToRun& step : output.steps) effects.emplace_back(std::move(step));
  for (ModelToCall& one : output.calls) call(std::move(one), now, effects);
}

void FrontendCore::call(ModelToCall call, Time now, FrontendEffects& effects) {
  Request request;
  request.id = trace_choice_.next();
  request.client = kEngine;
  request.tag = call.id;
  request.deadline = call.deadline;
  request.grace = Request::kNoLimit;  // its run is answered in time
  request.trace.arrived = now;
  request.priority = call.priority;
  request.input = std::move(call.input);
  NamedModel* const known = versions_.find(call.model);
  // The catalogue may have changed since the run began.
  if (known == nullptr ||
      dispatcher_.models()[known->current.index].input_bytes != request.input.size()) {
    called_.push_back({std::move(request),
                       0,
                       {StatusCode::unavailable, "the model was removed or changed meanwhile"},
                       {}});
    return;
  }
  DispatchOutput output;
  place(call.model, *known, std::move(request), false, now, output);
  emit(std::move(output), effects);
}

void FrontendCore::settle_calls(Time now, FrontendEffects& effects) {
  while (!called_.empty()) {
    Answer answer = std::move(called_.front());
    called_.pop_front();
    const RequestTrace& trace = answer.request.trace;
    ApplicationOutput output;
    applications_.answered(
        answer.request.tag,
        {std::move(answer.status), std::move(answer.outputs), trace.executed, trace.batch_size},
        now, output);
    carry_out(std::move(output), now, effects);
  }
}

// ---- what it tells

ModelState FrontendCore::state_of(const Application& application) const {
  if (!application.split.unmet.empty()) return ModelState::unavailable;
  // As the one of its models that is furthest from serving.
  bool all_ready = true;
  bool any_loading = false;
  for (const auto& [name, calls] : calls_of(application)) {
    const NamedModel* const known = versions_.find(name);
    const ModelState state = known == nullptr ? ModelState::unavailable : state_of(name, *known);
    if (state == ModelState::unavailable) return state;
    all_ready = all_ready && state == ModelState::ready;
    any_loading = any_loading || state == ModelState::loading;
  }
  if (all_ready) return ModelState::ready;
  return any_loading ? ModelState::loading : ModelState::idle;
}

ModelStatus FrontendCore::status_of(const Applications::Row& row, Time now) const {
  ModelStatus one;
  one.name = row.application->front.name;
  one.state = state_of(*row.application);
  one.slo_ms = row.application->front.slo_ms;
  one.rate_seen = row.rate_seen;
  one.rate_planned = std::numeric_limits<double>::infinity();
  for (const auto& [name, calls] : calls_of(*row.application)) {
    const NamedModel* const known = versions_.find(name);
    const double rate = known == nullptr ? 0 : demands_.rate_planned(known->demand);
    one.rate_planned = std::min(one.rate_planned, rate / static_cast<double>(calls));
    one.calls.push_back(name);
  }
  one.reason = why_unserved(*row.application);
  one.queued = row.runs;
  one.counters = row.counters;
  one.p50_ms = to_ms(row.latencies.percentile(0.5));
  one.p99_ms = to_ms(row.latencies.percentile(0.99));
  one.statistics = row.statistics;
  one.application = true;
  one.last_minute = row.outcomes.of_minute(now);
  one.latest = row.outcomes.of_now(now);
  return one;
}

}  // namespace gpulet::serve
