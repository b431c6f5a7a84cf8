#include "serve/models/successions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

constexpr std::size_t kVersionsInAStep = 256;  // that take over or are forgotten in one turn

}  // namespace

void Successions::stage(NamedModel& known, const ServedModel& model, std::string id, Time now,
                        FrontendEffects& effects) {
  if (known.next) drop_next(known, effects);
  known.refused.reset();
  known.failure.reset();
  known.stuck = false;
  ModelVersion version;
  if (auto back = models_.take_back(model.name, id)) {
    version = std::move(*back);
    versions_.change(version.index, model);
  } else {
    version.index = versions_.add(model);
    version.id = std::move(id);
  }
  const bool first = models_.lacks_file(known);
  journal_.note(
      false,
      first ? fmt::format("model {}: version {} has come from its store", model.name,
                          short_version(version.id))
            : fmt::format("model {}: version {} is to take over from version {}", model.name,
                          short_version(version.id), short_version(known.current.id)),
      now, effects);
  known.next = std::move(version);
  // A version can be replaced at once if it is asleep and unused, if another frontend serves it, or
  // if there is no file of it.
  const bool idle = models_.asleep(known) && versions_.unused(known.current.index);
  if (!idle && !elsewhere_ && !first) return;
  DispatchOutput output;
  take_over(known, output, now, effects);
  responses_.write(std::move(output), effects);
}

void Successions::drop_next(NamedModel& known, FrontendEffects& effects) {
  const std::string& name = models_.served(known.next->index).name;
  // A rollout that brings this version would retire the gpulets of the current one.
  const auto holds_it = [&](const auto& part) {
    const GpuletRecord* const gpulet = backends_.find(part.first);
    return gpulet != nullptr &&
           std::any_of(gpulet->models.begin(), gpulet->models.end(), [&](const auto& loaded) {
             return loaded.name == name && loaded.version == known.next->id;
           });
  };
  const std::optional<Rollout>& rollout = deployment_.rollout();
  if (rollout && std::any_of(rollout->parts().begin(), rollout->parts().end(), holds_it))
    deployment_.cancel_rollout(effects);
  models_.draining().push_back({name, std::move(*known.next), false, false});
  known.next.reset();
  known.parked = false;
  known.trial_wait = TrialWait::none;
}

void Successions::take_over(NamedModel& known, DispatchOutput& output, Time now,
                            FrontendEffects& effects) {
  const std::string name = models_.served(known.next->index).name;
  // A version without a file never served, so it does not count as the first one.
  const bool first = models_.lacks_file(known);
  versions_.succeed(known.current.index, known.next->index, now, output);
  models_.draining().push_back({name, std::move(known.current), false, true});
  known.current = std::move(*known.next);
  known.next.reset();
  known.parked = false;
  known.trial_wait = TrialWait::none;
  models_.changed(known);
  if (first) return;
  ++known.number;
  journal_.note(
      false,
      fmt::format("model {}: version {} has taken over", name, short_version(known.current.id)),
      now, effects);
}

void Successions::begin(const std::vector<GpuletRoute>& routes, Time now, DispatchOutput& output) {
  std::vector<bool> routed(models_.index_end());
  std::vector<bool> ready(models_.index_end());  // on a gpulet that takes batches
  for (const GpuletRoute& route : routes) {
    const GpuletRecord* const gpulet = backends_.find(route.gpulet);
    const bool takes_batches = gpulet != nullptr && gpulet->state == GpuletState::ready;
    for (const SlotSpec& slot : route.slots) {
      routed[slot.model] = true;
      if (takes_batches) ready[slot.model] = true;
    }
  }
  due_.clear();
  for (const auto& [name, known] : models_.all()) {
    if (!known.next || !routed[known.next->index] || ready[known.current.index]) continue;
    due_.push_back(name);
    const ServedModel& old = models_.served(known);
    const ServedModel& next = models_.served(known.next->index);
    const bool can_follow =
        take_same_requests(old.inputs, next.inputs) && old.outputs == next.outputs;
    if (!can_follow) versions_.flush(known.current.index, now, output);
  }
  for (const DrainingVersion& draining : models_.draining()) {
    if (!draining.closed && !routed[draining.version.index])
      versions_.flush(draining.version.index, now, output);
  }
  sweep_goes_on_ = true;
}

void Successions::finish(Time now, FrontendEffects& effects) {
  due_.clear();
  DispatchOutput output;
  for (auto& [name, known] : models_.all()) {
    if (known.next) take_over(known, output, now, effects);
  }
  responses_.write(std::move(output), effects);
}

void Successions::go_on(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  for (std::size_t left = kVersionsInAStep; left > 0 && !due_.empty(); --left) {
    NamedModel* const known = models_.find(due_.front());
    due_.pop_front();
    if (known != nullptr && known->next && models_.has_slot(*known->next))
      take_over(*known, output, now, effects);
  }
  sweep(now, output);
  responses_.write(std::move(output), effects);
}

void Successions::sweep(Time now, FrontendEffects& effects) {
  DispatchOutput output;
  sweep(now, output);
  responses_.write(std::move(output), effects);
}

void Successions::sweep(Time now, DispatchOutput& output) {
  for (DrainingVersion& draining : models_.draining()) {
    if (draining.closed || models_.has_slot(draining.version)) continue;
    versions_.close(draining.version.index,
                    {StatusCode::unavailable, "model " + draining.name + " was removed"}, now,
                    output);
    draining.closed = true;
  }
  std::size_t left = kVersionsInAStep;
  sweep_goes_on_ = false;
  std::erase_if(models_.draining(), [&](const DrainingVersion& draining) {
    if (!draining.closed || !versions_.unused(draining.version.index)) return false;
    if (left == 0) {
      sweep_goes_on_ = true;
      return false;
    }
    --left;
    versions_.forget(draining.version.index);
    return true;
  });
}

}  // namespace gpulet::serve
