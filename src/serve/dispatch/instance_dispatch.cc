#include "serve/dispatch/instance_dispatch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "gpulet/batching/dispatch_policy.h"

namespace gpulet::serve {

using schedule::Service;

void InstanceDispatch::follow(const std::vector<GpuletRoute>& routes) {
  by_need_.clear();
  controlled_.clear();
  for (const GpuletRoute& route : routes) {
    if (route.service == Service::rounds) continue;
    if (route.service == Service::by_need) by_need_.push_back(route.gpulet);
    if (route.service == Service::controlled) {
      controlled_.push_back(route.gpulet);
      if (RoutedGpulet* const gpulet = parts_.gpulets.find(route.gpulet))
        gpulet->at_once = control_.requests_at_once;
    }
    for (const SlotSpec& slot : route.slots)
      parts_.records.keep_responses(slot.model, control_.window.value_or(control_.period));
  }
}

void InstanceDispatch::forget(GpuletId id) {
  std::erase(by_need_, id);
  std::erase(controlled_, id);
}

void InstanceDispatch::set_expected(GpuletId instance, Duration expected) {
  RoutedGpulet* const gpulet = parts_.gpulets.find(instance);
  if (gpulet == nullptr) return;
  for (RoutedSlot& slot : gpulet->slots) slot.execution.assign(1, expected);
}

void InstanceDispatch::pump(Time now, DispatchOutput& out) {
  for (const GpuletId id : by_need_) {
    if (RoutedGpulet* const gpulet = parts_.gpulets.find(id)) pump_by_need(id, *gpulet, now, out);
  }
  if (!controlled_.empty()) pump_controlled(now, out);
}

void InstanceDispatch::pump_by_need(GpuletId id, RoutedGpulet& gpulet, Time now,
                                    DispatchOutput& out) {
  if (!gpulet.has_room()) return;
  std::vector<batching::ModelNeed> models;
  models.reserve(gpulet.slots.size());
  for (const RoutedSlot& slot : gpulet.slots) {
    const batching::PendingRequests& requests = parts_.queues.of(slot.model).requests;
    batching::ModelNeed& model = models.emplace_back();
    model.queued = requests.count_due_from(now);
    if (model.queued == 0) continue;
    model.mean_waited = requests.mean_waited(now) + control_.overhead;
    model.device_time = slot.execution.front();
    const std::optional<Responses>& responses = parts_.records.responses(slot.model);
    if (responses) model.response = responses->recent_mean(now);
    if (model.response) *model.response += control_.overhead;
    model.objective = from_ms(parts_.queues.models()[slot.model].slo_ms);
  }
  const auto chosen = control_.gpu == control::GpuRule::need
                          ? batching::neediest(models, {control_.set_point, control_.queued_weight},
                                               gpulet.last_slot)
                          : batching::next_in_turn(models, gpulet.last_slot);
  if (!chosen) return;
  gpulet.last_slot = *chosen;
  parts_.sender.send_next({id, &gpulet, &gpulet.slots[*chosen]}, 1, now, out);
}

// Serves queues in random order, each by a random free instance, until queues or instances run out.
void InstanceDispatch::pump_controlled(Time now, DispatchOutput& out) {
  std::map<ModelIndex, std::vector<ServingSlot>> free;
  for (const GpuletId id : controlled_) {
    RoutedGpulet* const gpulet = parts_.gpulets.find(id);
    if (gpulet == nullptr || !gpulet->has_room() || gpulet->slots.empty()) continue;
    const ServingSlot one{id, gpulet, &gpulet->slots.front()};
    if (choice_of(one, now).which != Choice::Which::none) free[one.slot->model].push_back(one);
  }
  while (!free.empty()) {
    const auto chosen =
        std::next(free.begin(), static_cast<std::ptrdiff_t>(chance_.below(free.size())));
    std::vector<ServingSlot>& instances = chosen->second;
    const std::size_t at = chance_.below(instances.size());
    const ServingSlot one = instances[at];
    send_chosen(one, choice_of(one, now), now, out);
    if (!one.gpulet->has_room())
      instances.erase(instances.begin() + static_cast<std::ptrdiff_t>(at));
    std::erase_if(instances, [&](const ServingSlot& other) {
      return choice_of(other, now).which == Choice::Which::none;
    });
    if (instances.empty()) free.erase(chosen);
  }
}

void InstanceDispatch::send_chosen(const ServingSlot& to, const Choice& choice, Time now,
                                   DispatchOutput& out) {
  batching::PendingRequests& requests = parts_.queues.of(to.slot->model).requests;
  std::vector<Request> taken;
  if (choice.which == Choice::Which::first) {
    taken = requests.take_due_from(choice.from, 1);
  } else {
    taken.push_back(requests.take_last());
    parts_.slots.reorder(to.slot->model);
  }
  parts_.sender.send(to, std::move(taken), now, out);
}

Time InstanceDispatch::reachable_by_rounds(ModelIndex model, Time now) const {
  Time reachable = kNever;
  for (const ServingSlot& one : parts_.slots.of(model)) {
    if (!one.gpulet->ready || !one.gpulet->has_rounds()) continue;
    reachable = std::min(reachable, parts_.slots.reachable_deadline(*one.gpulet, *one.slot, now));
  }
  return reachable;
}

// Beside gpulets with rounds, an instance takes only what they cannot serve in time and it can: the
// first request that is too late for them, or the last one of a backlog.
InstanceDispatch::Choice InstanceDispatch::choice_of(const ServingSlot& instance, Time now) const {
  const ModelIndex model = instance.slot->model;
  const batching::PendingRequests& requests = parts_.queues.of(model).requests;
  const bool alone = parts_.slots.only_instances(model);
  const Time from = alone ? now : now + instance.slot->execution.front();
  if (requests.count_due_from(from) == 0) return {};
  if (alone || requests.first_deadline_from(from, 1) < reachable_by_rounds(model, now))
    return {Choice::Which::first, from};
  return {parts_.slots.backlogged(model) ? Choice::Which::last : Choice::Which::none, from};
}

InstanceDispatch::Reading InstanceDispatch::read(ModelIndex model, Time now) {
  Reading reading{parts_.records.take_period(model), {}, !parts_.slots.only_instances(model)};
  if (reading.answered.answered() == 0) reading.age = mean_age(model, now);
  return reading;
}

Duration InstanceDispatch::mean_age(ModelIndex model, Time now) const {
  std::int64_t count = 0;
  Duration sum{};
  const auto add = [&](const auto& waiting) {
    if (waiting.empty()) return;
    const auto size = static_cast<std::int64_t>(waiting.size());
    sum += waiting.mean_waited(now) * size;
    count += size;
  };
  add(parts_.queues.of(model).requests);
  add(parts_.queues.of(model).suspects);
  for (const auto& [id, batch] : parts_.batches.all()) {
    if (batch.model != model) continue;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (batch.is_answered(i)) continue;
      sum += now - batch.requests[i].trace.arrived;
      ++count;
    }
  }
  return count == 0 ? Duration{} : sum / count;
}

}  // namespace gpulet::serve
