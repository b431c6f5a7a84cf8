#include "serve/requests/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/tensor.h"

namespace gpulet::serve {
namespace {

// Of a request that another frontend forwards. No request waits longer there.
constexpr Duration kLongestAge = std::chrono::minutes(5);

Status no_such_length(const DynamicModel& model, std::int64_t length) {
  std::vector<std::string> lengths;
  for (const auto& [one, bucket] : model.buckets) lengths.push_back(std::to_string(one));
  const bool pads = !model.front.bucket->padding.empty();
  return {StatusCode::invalid,
          pads ? fmt::format("model {} takes lengths up to {}; the request has {}",
                             model.front.name, lengths.back(), length)
               : fmt::format("model {} takes these lengths: {}; the request has {}",
                             model.front.name, joined(lengths), length)};
}

// The request's timeout is a queue timeout, not a deadline.
bool is_queue_timeout(const InferRequest& request, const ServedModel& model) {
  if (!model.queue || request.timeout <= Duration::zero()) return false;
  const QueueRules& rules = *model.queue;
  return rules.policy_of(rules.level_of(request.priority)).allow_timeout_override;
}

// BYTES inputs become slots.
Result<Bytes> input_of(Bytes payload, const ServedModel& model) {
  if (!has_bytes_tensor(model.inputs)) return payload;
  Result<Bytes> slots = to_slots(model.inputs, payload);
  if (!slots.ok()) return slots.status().within("model " + model.name);
  return slots;
}

}  // namespace

// ---- InflightLimiter

Result<InflightLimiter::Permit> InflightLimiter::enter(std::size_t bytes) {
  if (counts_->requests >= limits_.requests) {
    return Status(StatusCode::overloaded,
                  fmt::format("{} requests are in flight here, which is the limit (max_requests); "
                              "send slower",
                              counts_->requests));
  }
  if (bytes > limits_.bytes || counts_->bytes > limits_.bytes - bytes) {
    return Status(StatusCode::overloaded,
                  fmt::format("{} bytes of inputs are held here, and {} more would be above the "
                              "limit of {} (max_buffered_mb); send slower",
                              counts_->bytes, bytes, limits_.bytes));
  }
  ++counts_->requests;
  counts_->bytes += bytes;
  return Permit(counts_.get(), [counts = counts_, bytes](const void* /*counts*/) {
    --counts->requests;
    counts->bytes -= bytes;
  });
}

// ---- Admission

Status check_request(const InferRequest& request, const ServedModel& model) {
  const auto invalid = [&model](const std::string& why) {
    return Status(StatusCode::invalid, "model " + model.name + why);
  };
  if (request.inputs.size() != model.inputs.size()) {
    return invalid(fmt::format(" takes {} inputs; the request has {}", model.inputs.size(),
                               request.inputs.size()));
  }
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorSpec& expected = model.inputs[i];
    const TensorSpec& input = request.inputs[i];
    if (!input.name.empty() && input.name != expected.name) {
      return invalid(fmt::format(": input {} is named {}; the request calls it {}", i,
                                 expected.name, input.name));
    }
    if (input.type != expected.type || input.shape != expected.shape) {
      return invalid(fmt::format(": input {} is {}; the request has {}", expected.name,
                                 to_string(expected), to_string(input)));
    }
  }
  if (!has_bytes_tensor(model.inputs) && request.payload.size() != model.input_bytes) {
    return invalid(fmt::format(" takes {} bytes of inputs; the request has {}", model.input_bytes,
                               request.payload.size()));
  }
  if (request.timeout < Duration::zero()) return invalid(": the timeout must not be negative");
  return {};
}

BucketChoice choose_bucket(const DynamicModel& model, const InferRequest& request) {
  const ServedModel& front = model.front;
  BucketChoice choice;
  choice.name = bucket_name(front.name, front.bucket->length);
  ServedModel expected;
  expected.name = front.name;
  expected.inputs = front.inputs;
  if (request.inputs.size() == front.inputs.size()) {
    const Result<std::int64_t> length = length_of(front.inputs, request.inputs);
    if (!length.ok()) {
      choice.status = length.status().within("model " + front.name);
      return choice;
    }
    choice.length = length.value();
    const auto bucket = model.buckets.lower_bound(choice.length);
    const bool pads = !front.bucket->padding.empty();
    if (bucket == model.buckets.end() || (!pads && bucket->first != choice.length)) {
      choice.status = no_such_length(model, choice.length);
      return choice;
    }
    choice.name = bucket_name(front.name, bucket->first);
    // A bucket may still have another version than the longest.
    expected.inputs = with_length(bucket->second->inputs, choice.length);
    const Result<std::size_t> bytes = byte_size(expected.inputs);
    expected.input_bytes = bytes.ok() ? bytes.value() : 0;
  }
  choice.status = check_request(request, expected);
  return choice;
}

Status Admission::refusal_while_draining() {
  return {StatusCode::unavailable, "the frontend is shutting down; send to another"};
}

Admission::Target Admission::target_of(const RequestReceived& event) const {
  const InferRequest& request = event.request;
  NamedModel* const known = core_.models.find(request.model);
  // Other frontends forward to buckets; clients name the model.
  const bool hidden =
      known != nullptr && !event.forwarded && core_.models.served(*known).bucket != nullptr;
  if (known != nullptr && !hidden)
    return {known, 0, check_request(request, core_.models.served(*known))};
  const DynamicModel* const dynamic = core_.models.dynamic().find(request.model);
  if (dynamic == nullptr) return {};
  BucketChoice choice = choose_bucket(*dynamic, request);
  return {core_.models.find(choice.name), choice.length, std::move(choice.status)};
}

void Admission::on_request(RequestReceived event, Time now, FrontendEffects& effects) {
  InferRequest& received = event.request;
  const Target target = target_of(event);
  NamedModel* const known = target.model;
  if (known == nullptr) {
    InferReply reply;
    reply.tag = received.tag;
    reply.status = {
        StatusCode::not_found,
        fmt::format("model {} is not served here; `gpulet models list` shows {} that are",
                    received.model, core_.models.listed())};
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
  const Time arrived = now - std::min(event.age, kLongestAge);
  request.deadline = arrived + (request.own_deadline ? received.timeout : from_ms(model.slo_ms));
  request.grace = request.own_deadline ? Duration::zero() : options_.late_grace;
  request.trace.arrived = arrived;
  if (model.queue) {
    request.priority = received.priority;
    if (queue_timeout) request.queue_timeout = received.timeout;
  }

  request.forwarded = event.forwarded;
  if (!target.status.ok()) {
    DispatchOutput output;
    core_.dispatcher.refuse(known->current.index, std::move(request), target.status, output);
    return core_.responses.write(std::move(output), effects);
  }
  if (target.length > 0) {
    request.bucket = model.bucket;
    request.length = target.length;
    received.model = model.name;
  }
  Result<Bytes> input = input_of(std::move(received.payload), model);
  if (!input.ok()) {
    DispatchOutput output;
    core_.dispatcher.refuse(known->current.index, std::move(request), input.status(), output);
    return core_.responses.write(std::move(output), effects);
  }
  request.input = std::move(input).value();
  admit(event, *known, std::move(request), now, effects);
}

void Admission::admit(const RequestReceived& event, NamedModel& known, Request&& request, Time now,
                      FrontendEffects& effects) {
  const bool here = core_.routes.here(event.request.model);
  const bool takes_turns = !event.forwarded && core_.routes.divided(event.request.model);
  if (!here && event.forwarded) {
    effects.emplace_back(ReplyElsewhere{event.client, request.tag});
    return;
  }
  DispatchOutput output;
  Result<InflightLimiter::Permit> permit =
      refuses_ ? refusal_while_draining()
               : core_.limiter.enter(core_.models.served(known).input_bytes);
  if (!permit.ok()) {
    core_.dispatcher.refuse(known.current.index, std::move(request), permit.status(), output);
    return core_.responses.write(std::move(output), effects);
  }
  request.permit = std::move(permit).value();
  if (request.bucket != nullptr)
    request.input = padded(*request.bucket, request.input, request.length);
  if (!here || takes_turns)
    return core_.forwarder.forward(event.request.model, std::move(request), false, now, effects);
  admit_here(event.request.model, known, std::move(request), event.delayed, now, output);
  core_.responses.write(std::move(output), effects);
}

// `delayed`: it has waited for a frontend that serves, so its objective does not limit it.
void Admission::admit_here(const std::string& name, NamedModel& known, Request&& request,
                           bool delayed, Time now, DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  const bool was_asleep = expect(name, known);
  if (!request.own_deadline && core_.dispatcher.only_instances(index)) {
    request.late_after = request.deadline;
    request.deadline = std::max(request.deadline, now + options_.control.patience);
  }
  if (!request.own_deadline && delayed) {
    request.late_after = request.due();
    request.deadline = std::max(request.deadline, now + options_.wake_within);
  }
  enqueue(name, known, std::move(request), was_asleep, now, output);
}

void Admission::call(const std::string& name, NamedModel& known, Request&& request, Time now,
                     FrontendEffects& effects) {
  if (!core_.routes.here(name) || core_.routes.divided(name))
    return core_.forwarder.forward(name, std::move(request), false, now, effects);
  DispatchOutput output;
  enqueue(name, known, std::move(request), false, now, output);
  core_.responses.write(std::move(output), effects);
}

void Admission::take_back(std::vector<LocalRequest> requests, Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (LocalRequest& one : requests) {
    NamedModel* const known = core_.models.find(one.model);
    if (known == nullptr) {
      InferReply reply;
      reply.status = {StatusCode::unavailable, "model " + one.model + " was removed meanwhile"};
      core_.responses.write_forwarded(std::move(one.request), std::move(reply), effects);
      continue;
    }
    admit_here(one.model, *known, std::move(one.request), one.delayed, now, output);
  }
  core_.responses.write(std::move(output), effects);
}

bool Admission::expect(const std::string& name, NamedModel& known) {
  const bool was_asleep = core_.demands.asleep(known.demand);
  core_.demands.arrived(known.demand);
  core_.figures.arrived(name);
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
  const auto refuse = [&](const std::string& why) {
    core_.dispatcher.refuse(index, std::move(request),
                            {StatusCode::unavailable, "model " + name + why}, output);
  };
  if (const std::string why = core_.models.quarantine().why(name, now); !why.empty())
    return refuse(" is " + why);
  if (core_.dispatcher.has_ready_slot(index)) {
    core_.dispatcher.enqueue(index, std::move(request), now, output);
    return;
  }
  const bool unknown = core_.leadership.taking_over(now);
  if (const std::string why = core_.models.why_unserved(name, known); !why.empty() && !unknown)
    return refuse(" cannot be served: " + why);
  known.waking = known.waking || was_asleep || unknown;
  if (known.waking && !request.own_deadline) {
    request.late_after = request.due();
    request.deadline = std::max(request.deadline, now + options_.wake_within);
  }
  core_.dispatcher.enqueue(index, std::move(request), now, output);
}

}  // namespace gpulet::serve
