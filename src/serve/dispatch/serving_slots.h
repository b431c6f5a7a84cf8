// ServingSlots: the slots of gpulets that serve each model, how they divide its requests, and which
// deadlines they can still meet. Others read which models have slots. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/batching/dispatch_policy.h"
#include "serve/dispatch/agenda.h"
#include "serve/dispatch/model_queues.h"
#include "serve/dispatch/routed_gpulet.h"

namespace gpulet::serve {

class ServingSlots {
 public:
  // Both outlive it.
  ServingSlots(ModelQueues& queues, Agenda& agenda) : queues_(queues), agenda_(agenda) {}

  // ---- what others read

  [[nodiscard]] bool has_slot(ModelIndex model) const { return !of(model).empty(); }
  // Some gpulet that takes batches now has one.
  [[nodiscard]] bool has_ready_slot(ModelIndex model) const;
  // Only instances have slots for it, and at least one has.
  [[nodiscard]] bool only_instances(ModelIndex model) const;

  // ---- models

  void add(ModelIndex model);
  // REQUIRES: no gpulet has a slot for it.
  void forget(ModelIndex model);
  // Sorted by the gpulet's id, or as first_free_first() left them.
  [[nodiscard]] const std::vector<ServingSlot>& of(ModelIndex model) const {
    return models_[model].slots;
  }
  // Processes of one MIG instance in the order in which they become free.
  [[nodiscard]] const std::vector<ServingSlot>& first_free_first(ModelIndex model);
  // More requests wait than the largest batches of the ready slots hold.
  [[nodiscard]] bool backlogged(ModelIndex model) const;
  // The slot leaves requests to the others: it is ahead of its part, and they can serve them.
  [[nodiscard]] bool yields(const RoutedSlot& slot) const;
  // The earliest deadline that the slot can still meet.
  [[nodiscard]] Time reachable_deadline(const RoutedGpulet& gpulet, const RoutedSlot& slot,
                                        Time now) const;

  // ---- changes

  // Requests were added to one of the model's queues.
  void arrived(ModelIndex model);
  // The order of the model's waiting requests changed.
  void queue_changed(ModelIndex model);
  // Updates the orders of the model's gpulets. Call it after a change of its waiting requests, or
  // of the turns, parts or readiness of its slots.
  void reorder(ModelIndex model);
  // The slot takes a batch of `count` requests.
  void take(const ServingSlot& by, std::size_t count, Time now);
  void change_ready(RoutedGpulet& gpulet, bool ready);

  // ---- routes

  // Forgets all slots.
  void clear();
  // Adds the gpulet's slots. Call settle() when all are added.
  void join(GpuletId id, RoutedGpulet& gpulet);
  void settle();
  // Removes the gpulet's slots. REQUIRES: it is not ready.
  void leave(GpuletId id, const RoutedGpulet& gpulet);

 private:
  struct Serving {
    std::vector<ServingSlot> slots;
    std::size_t room = 0;       // sum of the largest batches of the ready ones with rounds
    bool in_turn = false;       // some are processes of one MIG instance
    batching::RateSplit split;  // over the ready ones with rounds
  };

  // The execution time that decides which requests the slot's next batch can serve in time: of the
  // largest batch if that leaves requests waiting, otherwise of the smallest.
  [[nodiscard]] Duration next_execution(const RoutedSlot& slot) const;
  // Divides the model's requests anew among the slots that are ready.
  static void split_rate(Serving& serving);
  static void delay_processes_beside(const RoutedGpulet& gpulet, const Serving& serving, Time now);

  ModelQueues& queues_;
  Agenda& agenda_;
  std::vector<Serving> models_;
};

}  // namespace gpulet::serve
