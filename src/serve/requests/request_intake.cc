#include "serve/requests/request_intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

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

Status synthetic_refused() {
  return {StatusCode::forbidden,
          "requests without bytes are not allowed here; set \"synthetic_inputs\": true in the "
          "frontend's file, or send the inputs"};
}

// The request's timeout is a queue timeout, not a deadline.
bool is_queue_timeout(const InferRequest& request, const ServedModel& model) {
  if (!model.queue || request.timeout <= Duration::zero()) return false;
  const QueueRules& rules = *model.queue;
  return rules.policy_of(rules.level_of(request.priority)).allow_timeout_override;
}

// BYTES inputs become slots.
Result<Bytes> input_of(InferRequest& request, const ServedModel& model) {
  if (request.synthetic || !has_bytes_tensor(model.inputs)) return std::move(request.payload);
  Result<Bytes> slots = to_slots(model.inputs, request.payload);
  if (!slots.ok()) return slots.status().within("model " + model.name);
  return slots;
}

}  // namespace

Status check_request(const InferRequest& request, const ServedModel& model,
                     std::uint64_t kept_bytes) {
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
  if (request.synthetic && (request.payload.size() > 0 || kept_bytes > 0)) {
    return invalid(fmt::format(" makes synthetic inputs itself; the request has {} bytes of inputs",
                               std::max<std::uint64_t>(kept_bytes, request.payload.size())));
  }
  const bool has_image =
      std::any_of(model.inputs.begin(), model.inputs.end(),
                  [](const TensorSpec& input) { return input.image.has_value(); });
  if (request.synthetic && has_image)
    return invalid(" decodes images, and synthetic inputs are none; send an image");
  const std::uint64_t bytes = kept_bytes > 0 ? kept_bytes : request.payload.size();
  // Entries keep BYTES tensors as slots.
  const bool any_size = request.synthetic || (has_bytes_tensor(model.inputs) && kept_bytes == 0);
  if (!any_size && bytes != model.input_bytes) {
    return invalid(
        fmt::format(" takes {} bytes of inputs; the request has {}", model.input_bytes, bytes));
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

RequestIntake::Target RequestIntake::target_of(const RequestReceived& event) const {
  const InferRequest& request = event.request;
  NamedModel* const known = models_.find(request.model);
  // Other frontends forward to buckets; clients name the model.
  const bool hidden =
      known != nullptr && !event.forwarded && models_.served(*known).bucket != nullptr;
  if (known != nullptr && !hidden)
    return {known, 0, check_request(request, models_.served(*known), event.kept_bytes)};
  const DynamicModel* const dynamic = models_.table().dynamic().find(request.model);
  if (dynamic == nullptr) return {};
  BucketChoice choice = choose_bucket(*dynamic, request);
  // Padding needs the payload. Entries forward to buckets.
  if (event.kept_bytes > 0 && choice.status.ok()) {
    choice.status = {StatusCode::invalid,
                     "model " + request.model + ": a request without its payload names a bucket"};
  }
  return {models_.find(choice.name), choice.length, std::move(choice.status)};
}

Request RequestIntake::request_for(const RequestReceived& event, const ServedModel& model,
                                   Time now) {
  const InferRequest& received = event.request;
  const bool queue_timeout = is_queue_timeout(received, model);
  Request request;
  request.id = traces_.next_id();
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
  request.kept = event.kept_bytes > 0;
  return request;
}

void RequestIntake::on_request(RequestReceived event, Time now, FrontendEffects& effects) {
  InferRequest& received = event.request;
  const Target target = target_of(event);
  NamedModel* const known = target.model;
  if (known == nullptr) {
    InferReply reply;
    reply.tag = received.tag;
    reply.status = {
        StatusCode::not_found,
        fmt::format("model {} is not served here; `gpulet models list` shows {} that are",
                    received.model, models_.table().listed())};
    effects.emplace_back(ReplyToClient{event.client, std::move(reply)});
    return;
  }
  const ServedModel& model = models_.served(*known);
  Request request = request_for(event, model, now);
  if (received.synthetic && !options_.synthetic_inputs) {
    return dispatch_.refuse(known->current.index, std::move(request), synthetic_refused(), effects);
  }
  if (!target.status.ok()) {
    return dispatch_.refuse(known->current.index, std::move(request), target.status, effects);
  }
  if (target.length > 0) {
    request.bucket = model.bucket;
    request.length = target.length;
    received.model = model.name;
  }
  if (request.kept) return admission_.admit(event, *known, std::move(request), now, effects);
  Result<Bytes> input = input_of(received, model);
  if (!input.ok()) {
    return dispatch_.refuse(known->current.index, std::move(request), input.status(), effects);
  }
  request.input = std::move(input).value();
  request.synthetic = received.synthetic;
  admission_.admit(event, *known, std::move(request), now, effects);
}

}  // namespace gpulet::serve
