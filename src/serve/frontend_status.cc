// What FrontendCore tells about itself.
#include <algorithm>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

ModelsReply FrontendCore::models() const {
  ModelsReply reply;
  const auto describe = [this](ModelIndex index, ModelState state, const std::string& version) {
    const ServedModel& model = dispatcher_.models()[index];
    ModelInfo info;
    info.name = model.name;
    info.inputs = model.inputs;
    info.outputs = model.outputs;
    info.slo_ms = model.slo_ms;
    info.max_batch = model.max_batch;
    info.state = state;
    info.version = version;
    return info;
  };
  for (const auto& [name, known] : versions_.named()) {
    ModelInfo info = describe(known.current.index, state_of(name, known), known.current.id);
    if (known.next) info.next = known.next->id;
    if (known.refused && !known.current_refused()) {
      info.next = known.refused->id;
      info.next_refused = true;
    }
    info.reason = reason_of(name, known);
    reply.models.push_back(std::move(info));
  }
  for (const LeavingVersion& leaving : versions_.leaving()) {
    if (leaving.removed && versions_.find(leaving.name) == nullptr) {
      reply.models.push_back(
          describe(leaving.version.index, ModelState::leaving, leaving.version.id));
    }
  }
  describe_applications(reply);
  return reply;
}

FrontendStatus FrontendCore::status(Time now) const {
  FrontendStatus status;
  status.state = draining_                               ? "draining"
                 : serving_.empty() && epoch_.value == 0 ? "starting"
                                                         : "serving";
  status.policy = options_.policy;
  status.epoch = epoch_;
  status.reorganising = plan_pending_ || rollout_.has_value();
  status.schedulable = plan_.schedulable();
  status.reorganisations = reorganisation_counters_;
  status.backends = fleet_.backends();
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    GpuletStatus one{
        id, gpulet, std::nullopt, dispatcher_.in_flight(id), 0, dispatcher_.statistics(id)};
    if (const auto planned = serving_.find(id); planned != serving_.end())
      one.planned = planned->second;
    if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
    status.gpulets.push_back(std::move(one));
  }
  for (const auto& [name, known] : versions_.named()) {
    const ModelIndex index = known.current.index;
    const observe::Histogram latencies = dispatcher_.latencies(index, now);
    ModelStatus one;
    one.name = name;
    one.state = state_of(name, known);
    one.version = known.current.id;
    one.slo_ms = dispatcher_.models()[index].slo_ms;
    one.rate_seen = demands_.rate_seen(known.demand);
    one.rate_planned = demands_.rate_planned(known.demand);
    one.queued = dispatcher_.queued(index);
    one.counters = dispatcher_.counters(index);
    one.p50_ms = to_ms(latencies.percentile(0.5));
    one.p99_ms = to_ms(latencies.percentile(0.99));
    const auto unserved =
        std::find_if(plan_.unserved.begin(), plan_.unserved.end(),
                     [&name = name](const auto& candidate) { return candidate.model == name; });
    if (unserved != plan_.unserved.end()) one.rate_unserved = unserved->rate;
    one.reason = reason_of(name, known);
    status.models.push_back(std::move(one));
  }
  describe_applications(status, now);
  status.events = events_;
  return status;
}

}  // namespace gpulet::serve
