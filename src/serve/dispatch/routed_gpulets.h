// RoutedGpulets: the gpulets that have routes, or still hold batches. Others read what each holds
// and has run. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/dispatch/batches_in_flight.h"
#include "serve/dispatch/routed_gpulet.h"
#include "serve/dispatch/serving_slots.h"

namespace gpulet::serve {

class RoutedGpulets {
 public:
  // Both outlive it.
  RoutedGpulets(ServingSlots& slots, Agenda& agenda) : slots_(slots), agenda_(agenda) {}

  // ---- what others read; of an unknown gpulet nothing

  // Batches.
  [[nodiscard]] std::size_t in_flight(GpuletId id) const;
  // The expected durations of the gpulet's slot for the model; empty where it has none.
  [[nodiscard]] std::vector<Duration> execution(GpuletId id, ModelIndex model) const;
  [[nodiscard]] GpuletStatistics statistics(GpuletId id) const;
  // RecentPace of its batches.
  [[nodiscard]] double pace(GpuletId id, Time now) const;

  // ---- gpulets

  // Null: it has no route and holds nothing.
  [[nodiscard]] RoutedGpulet* find(GpuletId id);
  [[nodiscard]] const RoutedGpulet* find(GpuletId id) const;
  // As Dispatcher::set_routes().
  void set_routes(const std::vector<GpuletRoute>& routes, Time now);
  void remove(GpuletId id);
  // The next pump considers all its models anew.
  void touch(const RoutedGpulet& gpulet);

  // ---- batches

  // The gpulet executed the batch.
  void ran(RoutedGpulet& gpulet, const BatchInFlight& batch, Duration executed, Time now);
  // The gpulet does not hold the batch any more. `executed`: without an error.
  void release(const BatchInFlight& batch, bool executed, Time now);

 private:
  ServingSlots& slots_;
  Agenda& agenda_;
  std::map<GpuletId, RoutedGpulet> gpulets_;
};

}  // namespace gpulet::serve
