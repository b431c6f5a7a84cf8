#include "serve/dispatch/serving_slots.h"

#include <algorithm>

namespace gpulet::serve {

// ---- models

void ServingSlots::add(ModelIndex model) {
  if (model >= models_.size()) models_.resize(model + 1);
  agenda_.add(model);
}

void ServingSlots::forget(ModelIndex model) {
  models_[model] = {};
  agenda_.forget(model);
}

bool ServingSlots::has_ready_slot(ModelIndex model) const {
  return std::any_of(of(model).begin(), of(model).end(),
                     [](const ServingSlot& one) { return one.gpulet->ready; });
}

bool ServingSlots::only_instances(ModelIndex model) const {
  return has_slot(model) && std::none_of(of(model).begin(), of(model).end(),
                                         [](const auto& one) { return one.gpulet->has_rounds(); });
}

const std::vector<ServingSlot>& ServingSlots::first_free_first(ModelIndex model) {
  Serving& serving = models_[model];
  if (serving.in_turn) {
    std::stable_sort(serving.slots.begin(), serving.slots.end(),
                     [](const ServingSlot& a, const ServingSlot& b) {
                       return a.gpulet->busy_until < b.gpulet->busy_until;
                     });
  }
  return serving.slots;
}

bool ServingSlots::backlogged(ModelIndex model) const {
  return queues_.of(model).requests.size() > models_[model].room;
}

bool ServingSlots::yields(const RoutedSlot& slot) const {
  return models_[slot.model].split.ahead(slot.part) && !backlogged(slot.model);
}

// With a backlog, requests that only a smaller batch could serve in time are given up. Otherwise
// the head of the queue, always urgent, would keep batches small, and the goodput would collapse.
Time ServingSlots::reachable_deadline(const RoutedGpulet& gpulet, const RoutedSlot& slot,
                                      Time now) const {
  if (!gpulet.has_rounds()) return now;  // it may become idle
  const Time start = std::max(now, gpulet.busy_until);
  const Duration execution = next_execution(slot);
  return start + execution + gpulet.allowance.for_execution(execution);
}

Duration ServingSlots::next_execution(const RoutedSlot& slot) const {
  const std::size_t largest_batch = slot.execution.size();
  const bool some_stay = queues_.of(slot.model).requests.size() > largest_batch;
  return some_stay ? slot.execution.back() : slot.execution.front();
}

// ---- changes

void ServingSlots::arrived(ModelIndex model) {
  queue_changed(model);
  queues_.list(model);
}

void ServingSlots::queue_changed(ModelIndex model) {
  reorder(model);
  agenda_.touch(model);
}

// The models of a gpulet take turns without pause. Of those with waiting requests, the one that was
// served longest ago is next. A request that just missed a batch therefore waits for at most one
// batch of every slot: the planned round. Waiting for full batches or for a point in time would let
// rounds drift. A slot that is ahead of its part of the model's requests leaves its turn to the
// other models, unless the model has a backlog and no other model uses the turn. A slot alone in
// its gpulet leaves requests to other gpulets in the same way: yields().
void ServingSlots::reorder(ModelIndex model) {
  const Serving& serving = models_[model];
  for (const ServingSlot& one : serving.slots) {
    RoutedGpulet& gpulet = *one.gpulet;
    if (!gpulet.takes_turns()) continue;
    const batching::PendingRequests& requests = queues_.of(model).requests;
    const bool waits = !requests.empty();
    const RoutedSlot& slot = *one.slot;
    const auto index = static_cast<std::size_t>(one.slot - gpulet.slots.data());
    const bool ahead = serving.split.ahead(slot.part);
    gpulet.turns.set(index, waits && !ahead ? slot.turn : kNever);
    gpulet.yielding.set(index, waits && ahead && backlogged(model) ? slot.turn : kNever);
    gpulet.latest_starts.set(index,
                             waits ? requests.front_deadline() - next_execution(slot) : kNever);
  }
}

void ServingSlots::take(const ServingSlot& by, std::size_t count, Time now) {
  Serving& serving = models_[by.slot->model];
  by.slot->turn = now + by.gpulet->duty_cycle;
  if (by.gpulet->processes > 1) delay_processes_beside(*by.gpulet, serving, now);
  if (by.gpulet->has_rounds()) serving.split.take(by.slot->part, count, by.slot->execution.size());
  reorder(by.slot->model);
  // The parts have changed, so the model's other slots may take requests that they left before.
  if (serving.slots.size() > 1) agenda_.touch(by.slot->model);
}

// Batches that start at equal intervals hold equally many requests.
void ServingSlots::delay_processes_beside(const RoutedGpulet& gpulet, const Serving& serving,
                                          Time now) {
  const Time turn = now + gpulet.duty_cycle / gpulet.processes;
  for (const ServingSlot& other : serving.slots) {
    if (other.gpulet != &gpulet && other.gpulet->instance == gpulet.instance)
      other.slot->turn = std::max(other.slot->turn, turn);
  }
}

void ServingSlots::change_ready(RoutedGpulet& gpulet, bool ready) {
  if (gpulet.ready == ready) return;
  gpulet.ready = ready;
  if (!gpulet.has_rounds()) return;
  for (const RoutedSlot& slot : gpulet.slots) {
    Serving& serving = models_[slot.model];
    serving.room =
        ready ? serving.room + slot.execution.size() : serving.room - slot.execution.size();
    split_rate(serving);
    reorder(slot.model);
  }
}

void ServingSlots::split_rate(Serving& serving) {
  serving.split.clear();
  for (const ServingSlot& one : serving.slots) {
    if (one.gpulet->ready && one.gpulet->has_rounds()) serving.split.join(one.slot->part);
  }
}

// ---- routes

void ServingSlots::clear() {
  for (Serving& serving : models_) {
    serving.slots.clear();
    serving.in_turn = false;
    serving.room = 0;
  }
}

void ServingSlots::join(GpuletId id, RoutedGpulet& gpulet) {
  for (RoutedSlot& slot : gpulet.slots) {
    Serving& serving = models_[slot.model];
    serving.slots.push_back({id, &gpulet, &slot});
    if (gpulet.ready && gpulet.has_rounds()) serving.room += slot.execution.size();
    if (gpulet.processes > 1) serving.in_turn = true;
  }
}

void ServingSlots::settle() {
  for (ModelIndex model = 0; model < models_.size(); ++model) {
    Serving& serving = models_[model];
    std::sort(serving.slots.begin(), serving.slots.end(),
              [](const ServingSlot& a, const ServingSlot& b) { return a.id < b.id; });
    split_rate(serving);
    reorder(model);
  }
}

void ServingSlots::leave(GpuletId id, const RoutedGpulet& gpulet) {
  for (const RoutedSlot& slot : gpulet.slots)
    std::erase_if(models_[slot.model].slots, [id](const auto& one) { return one.id == id; });
}

}  // namespace gpulet::serve
