#include "serve/requests/admission.h"

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/tensor.h"
namespace gpulet::serve {

Status Admission::refusal_while_draining() {
  return {StatusCode::unavailable, "the frontend is shutting down; send to another"};
}

void Admission::admit(const RequestReceived& event, NamedModel& known, Request&& request, Time now,
                      FrontendEffects& effects) {
  const bool here = forwarder_.routes().here(event.request.model);
  const bool takes_turns = !event.forwarded && forwarder_.routes().divided(event.request.model);
  if (!here && event.forwarded) {
    effects.emplace_back(ReplyElsewhere{event.client, request.tag});
    return;
  }
  if (event.forwarded) entries_.add(event.client, event.member);
  if (request.kept && !entries_.may_keep(event.client, now)) {
    effects.emplace_back(ReplyElsewhere{event.client, request.tag, true});
    return;
  }
  DispatchOutput output;
  const std::size_t bytes = request.kept ? 0 : models_.served(known).input_bytes;
  Result<InflightLimiter::Permit> permit =
      refuses_ ? refusal_while_draining() : limiter_.enter(bytes);
  if (!permit.ok()) {
    dispatch_.dispatcher().refuse(known.current.index, std::move(request), permit.status(), output);
    return dispatch_.write(std::move(output), effects);
  }
  request.permit = std::move(permit).value();
  if (request.bucket != nullptr && !request.synthetic)
    request.input = padded(*request.bucket, request.input, request.length);
  if (!here || takes_turns)
    return forwarder_.forward(event.request.model, std::move(request), false, now, effects);
  admit_here(event.request.model, known, std::move(request), event.delayed, now, output);
  dispatch_.write(std::move(output), effects);
}

// `delayed`: it has waited for a frontend that serves, so its objective does not limit it.
void Admission::admit_here(const std::string& name, NamedModel& known, Request&& request,
                           bool delayed, Time now, DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  const bool was_asleep = arrivals_.expect(name, known);
  if (!request.own_deadline && dispatch_.dispatcher().slots().only_instances(index)) {
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
  if (!serves_all_of(name))
    return forwarder_.forward(name, std::move(request), false, now, effects);
  DispatchOutput output;
  enqueue(name, known, std::move(request), false, now, output);
  dispatch_.write(std::move(output), effects);
}

void Admission::take_back(std::vector<LocalRequest> requests, Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (LocalRequest& one : requests) {
    NamedModel* const known = models_.find(one.model);
    if (known == nullptr) {
      InferReply reply;
      reply.status = {StatusCode::unavailable, "model " + one.model + " was removed meanwhile"};
      dispatch_.responses().write_forwarded(std::move(one.request), std::move(reply), effects);
      continue;
    }
    admit_here(one.model, *known, std::move(one.request), one.delayed, now, output);
  }
  dispatch_.write(std::move(output), effects);
}

void Admission::enqueue(const std::string& name, NamedModel& known, Request&& request,
                        bool was_asleep, Time now, DispatchOutput& output) {
  const ModelIndex index = known.current.index;
  const auto refuse = [&](const std::string& why) {
    dispatch_.dispatcher().refuse(index, std::move(request),
                                  {StatusCode::unavailable, "model " + name + why}, output);
  };
  if (const std::string why = models_.setbacks().quarantine().why(name, now); !why.empty())
    return refuse(" is " + why);
  if (dispatch_.dispatcher().slots().has_ready_slot(index)) {
    dispatch_.dispatcher().enqueue(index, std::move(request), now, output);
    return;
  }
  const bool unknown = leadership_.taking_over(now);
  if (const std::string why = models_.states().why_unserved(name, known); !why.empty() && !unknown)
    return refuse(" cannot be served: " + why);
  known.waking = known.waking || was_asleep || unknown;
  if (known.waking && !request.own_deadline) {
    request.late_after = request.due();
    request.deadline = std::max(request.deadline, now + options_.wake_within);
  }
  dispatch_.dispatcher().enqueue(index, std::move(request), now, output);
}

void Admission::withdraw(std::string_view model, ClientId client, std::uint64_t tag,
                         FrontendEffects& effects) {
  const auto forget = [&](std::string_view name) {
    if (const NamedModel* const known = models_.find(name))
      dispatch_.dispatcher().withdraw(known->current.index, client, tag);
  };
  forget(model);
  if (const DynamicModel* const dynamic = models_.table().dynamic().find(model)) {
    for (const std::string& bucket : dynamic->names()) forget(bucket);
  }
  forwarder_.withdraw(client, tag, effects);
}

}  // namespace gpulet::serve
