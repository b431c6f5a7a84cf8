// InstanceDispatch: when instances (schedule/policy.h) take requests, one at a time or, on a CPU,
// as many as Options::requests_at_once: those of a GPU from the neediest model, those of a CPU from
// a random one. Beside gpulets with rounds, they take
// only what those cannot serve in time. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/time.h"
#include "gpulet/control/node_control.h"
#include "serve/dispatch/batch_sender.h"
#include "serve/dispatch/dispatch_records.h"
#include "serve/dispatch/routed_gpulets.h"

namespace gpulet::serve {

class InstanceDispatch {
 public:
  // What is shared with the rest of the Dispatcher. All outlive it.
  struct Parts {
    ModelQueues& queues;
    ServingSlots& slots;
    RoutedGpulets& gpulets;
    DispatchRecords& records;
    const BatchesInFlight& batches;
    BatchSender& sender;
  };

  InstanceDispatch(const control::Options& control, const Parts& parts)
      : control_(control), parts_(parts), chance_(control.seed) {}

  // The routes have these instances; models with an instance keep their response times.
  void follow(const std::vector<GpuletRoute>& routes);
  // The gpulet is gone.
  void forget(GpuletId id);
  // The expected duration of one request on the instance from now on.
  void set_expected(GpuletId instance, Duration expected);
  void pump(Time now, DispatchOutput& out);

  // How the model was served since the last call.
  struct Reading {
    Responses::Period answered;
    Duration age{};       // mean_age(), where nothing was answered
    bool spills = false;  // gpulets with rounds serve it, too
  };
  [[nodiscard]] Reading read(ModelIndex model, Time now);
  // The mean age of the requests that wait or are in flight; zero without any.
  [[nodiscard]] Duration mean_age(ModelIndex model, Time now) const;

 private:
  // The request that a CPU's instance takes from its queue, of those due at `from` or later.
  struct Choice {
    enum class Which : std::uint8_t { none, first, last };
    Which which = Which::none;
    Time from{};
  };

  void pump_by_need(GpuletId id, RoutedGpulet& gpulet, Time now, DispatchOutput& out);
  void pump_controlled(Time now, DispatchOutput& out);
  void send_chosen(const ServingSlot& to, const Choice& choice, Time now, DispatchOutput& out);
  [[nodiscard]] Choice choice_of(const ServingSlot& instance, Time now) const;
  // The earliest deadline that a gpulet with rounds can still meet; kNever without one.
  [[nodiscard]] Time reachable_by_rounds(ModelIndex model, Time now) const;

  const control::Options control_;
  const Parts parts_;
  Random chance_;
  std::vector<GpuletId> by_need_;     // with routes, ascending
  std::vector<GpuletId> controlled_;  // with routes, ascending
};

}  // namespace gpulet::serve
