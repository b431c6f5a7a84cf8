// What FrontendCore tells about itself.
#include <algorithm>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

ModelsReply FrontendCore::models() const {
  ModelsReply reply;
  for (const ServedModel& model : dispatcher_.models()) {
    reply.models.push_back(
        {model.name, model.inputs, model.outputs, model.slo_ms, model.max_batch});
  }
  return reply;
}

FrontendStatus FrontendCore::status(Time now) const {
  FrontendStatus status;
  status.state = draining_ ? "draining" : serving_.empty() ? "starting" : "serving";
  status.policy = options_.policy;
  status.epoch = epoch_;
  status.reorganising = plan_pending_ || rollout_.has_value();
  status.schedulable = plan_.schedulable();
  status.backends = fleet_.backends();
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    GpuletStatus one{
        id, gpulet, std::nullopt, dispatcher_.in_flight(id), 0, dispatcher_.statistics(id)};
    if (const auto planned = serving_.find(id); planned != serving_.end())
      one.planned = planned->second;
    if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
    status.gpulets.push_back(std::move(one));
  }
  for (ModelIndex i = 0; i < dispatcher_.models().size(); ++i) {
    const ServedModel& model = dispatcher_.models()[i];
    const observe::Histogram latencies = dispatcher_.latencies(i, now);
    ModelStatus one;
    one.name = model.name;
    one.slo_ms = model.slo_ms;
    one.rate_seen = demands_.rate_seen(i);
    one.rate_planned = demands_.rate_planned(i);
    one.queued = dispatcher_.queued(i);
    one.counters = dispatcher_.counters(i);
    one.p50_ms = to_ms(latencies.percentile(0.5));
    one.p99_ms = to_ms(latencies.percentile(0.99));
    const auto unserved =
        std::find_if(plan_.unserved.begin(), plan_.unserved.end(),
                     [&model](const auto& candidate) { return candidate.model == model.name; });
    if (unserved != plan_.unserved.end()) {
      one.rate_unserved = unserved->rate;
      one.reason = unserved->reason;
    }
    if (held_back_.contains(model.name)) one.reason = "held back for a while: its gpulet failed";
    status.models.push_back(std::move(one));
  }
  status.events = events_;
  return status;
}

}  // namespace gpulet::serve
