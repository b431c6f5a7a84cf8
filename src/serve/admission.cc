#include "serve/admission.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

// The request's timeout is a queue timeout, not a deadline.
bool is_queue_timeout(const InferRequest& request, const ServedModel& model) {
  if (!model.queue || request.timeout <= Duration::zero()) return false;
  const QueueRules& rules = *model.queue;
  return rules.policy_of(rules.level_of(request.priority)).allow_timeout_override;
}

}  // namespace

// ---- InflightLimiter

class InflightLimiter::CountedPermit {
 public:
  CountedPermit(std::shared_ptr<Counts> counts, std::size_t bytes)
      : counts_(std::move(counts)), bytes_(bytes) {
    ++counts_->requests;
    counts_->bytes += bytes_;
  }
  ~CountedPermit() {
    --counts_->requests;
    counts_->bytes -= bytes_;
  }
  CountedPermit(const CountedPermit&) = delete;
  CountedPermit& operator=(const CountedPermit&) = delete;

 private:
  const std::shared_ptr<Counts> counts_;
  const std::size_t bytes_;
};

Result<InflightLimiter::Permit> InflightLimiter::enter(std::size_t bytes) {
  if (counts_->requests >= limits_.requests) {
    return Status(
        StatusCode::overloaded,
        std::to_string(counts_->requests) +
            " requests are under way here, which is the limit (max_requests); send slower");
  }
  if (bytes > limits_.bytes || counts_->bytes > limits_.bytes - bytes) {
    return Status(StatusCode::overloaded,
                  std::to_string(counts_->bytes) + " bytes of inputs are held here, and " +
                      std::to_string(bytes) + " more would be above the limit of " +
                      std::to_string(limits_.bytes) + " (max_buffered_mb); send slower");
  }
  return Permit(std::make_shared<const CountedPermit>(counts_, bytes));
}

// ---- Admission

Status check_request(const InferRequest& request, const ServedModel& model) {
  const std::string where = "model " + model.name;
  if (request.inputs.size() != model.inputs.size()) {
    return {StatusCode::invalid, where + " takes " + std::to_string(model.inputs.size()) +
                                     " inputs; the request has " +
                                     std::to_string(request.inputs.size())};
  }
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorSpec& expected = model.inputs[i];
    const TensorSpec& given = request.inputs[i];
    if (!given.name.empty() && given.name != expected.name) {
      return {StatusCode::invalid, where + ": input " + std::to_string(i) + " is named " +
                                       expected.name + "; the request calls it " + given.name};
    }
    if (given.type != expected.type || given.shape != expected.shape) {
      return {StatusCode::invalid, where + ": input " + expected.name + " is " +
                                       to_string(expected) + "; the request has " +
                                       to_string(given)};
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

Status Admission::refusal_while_draining() {
  return {StatusCode::unavailable, "the frontend is shutting down; send to another"};
}

void Admission::on_request(RequestReceived event, Time now, FrontendEffects& effects) {
  InferRequest& received = event.request;
  NamedModel* const known = core_.models.find(received.model);
  if (known == nullptr) {
    InferReply reply;
    reply.tag = received.tag;
    reply.status = {StatusCode::not_found,
                    "model " + received.model + " is not served here; `gpulet models list` shows " +
                        std::to_string(core_.models.all().size()) + " that are"};
    effects.emplace_back(ReplyToClient{event.client, std::move(reply)});
    return;
  }
  const ServedModel& model = core_.models.served(*known);
  const bool queue_timeout = is_queue_timeout(received, model);
  Request request;
  request.id = core_.traces.next_id();
  request.client = event.client;
  request.tag = received.tag;
  request.own_deadline = received.timeout > Duration::zero() && !queue_timeout;
  request.deadline = now + (request.own_deadline ? received.timeout : from_ms(model.slo_ms));
  request.grace = request.own_deadline ? Duration::zero() : options_.late_grace;
  request.trace.arrived = now;
  if (model.queue) {
    request.priority = received.priority;
    if (queue_timeout) request.queue_timeout = received.timeout;
  }

  DispatchOutput output;
  if (const Status status = check_request(received, model); !status.ok()) {
    core_.dispatcher.refuse(known->current.index, std::move(request), status, output);
  } else {
    request.input = std::move(received.payload);
    admit(received.model, *known, std::move(request), now, output);
  }
  core_.responses.write(std::move(output), effects);
}

void Admission::admit(const std::string& name, NamedModel& known, Request&& request, Time now,
                      DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  if (draining_) {
    core_.dispatcher.refuse(index, std::move(request), refusal_while_draining(), output);
    return;
  }
  const bool was_asleep = expect(name, known);
  Result<InflightLimiter::Permit> permit = core_.limiter.enter(request.input.size());
  if (!permit.ok()) {
    core_.dispatcher.refuse(index, std::move(request), permit.status(), output);
    return;
  }
  request.place = std::move(permit).value();
  if (!request.own_deadline && core_.dispatcher.only_instances(index)) {
    request.late_after = request.deadline;
    request.deadline = std::max(request.deadline, now + options_.control.patience);
  }
  enqueue(name, known, std::move(request), was_asleep, now, output);
}

bool Admission::expect(const std::string& name, NamedModel& known) {
  const bool was_asleep = core_.demands.asleep(known.demand);
  core_.demands.arrived(known.demand);
  if (core_.dispatcher.has_ready_slot(known.current.index)) {
    known.waking = false;
    return false;
  }
  // Without a planned gpulet, the plan is made now, not when the rate has been estimated.
  if (core_.demands.rate_planned(known.demand) <= 0 && !known.current_refused() &&
      !core_.models.quarantine().holds(name))
    core_.plan_requests.add_urgent("first request of " + name);
  return was_asleep;
}

void Admission::enqueue(const std::string& name, NamedModel& known, Request&& request,
                        bool was_asleep, Time now, DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  if (const std::string why = core_.models.quarantine().why(name, now); !why.empty()) {
    core_.dispatcher.refuse(index, std::move(request),
                            {StatusCode::unavailable, "model " + name + " is " + why}, output);
    return;
  }
  if (core_.dispatcher.has_ready_slot(index)) {
    core_.dispatcher.enqueue(index, std::move(request), now, output);
    return;
  }
  if (const std::string reason = core_.models.why_unserved(name, known); !reason.empty()) {
    core_.dispatcher.refuse(index, std::move(request),
                            {StatusCode::unavailable, "model " + name + " has no place: " + reason},
                            output);
    return;
  }
  known.waking = known.waking || was_asleep;
  if (known.waking && !request.own_deadline) {
    request.late_after = request.due();
    request.deadline = std::max(request.deadline, now + options_.wake_within);
  }
  core_.dispatcher.enqueue(index, std::move(request), now, output);
}

}  // namespace gpulet::serve
