// Dispatcher: the queues of requests, the gpulets that serve them, and the batches in flight. It
// decides when each batch leaves, and gives every request exactly one answer whatever happens to
// gpulets. It is made of parts, each of which owns what it decides about:
//
// - VersionLifecycle: versions of models come, succeed one another and go.
// - ModelQueues, ServingSlots, RoutedGpulets, BatchesInFlight and DispatchRecords: what waits, what
//   serves it, what runs, and what became of it. Others read these.
// - RoundDispatch and InstanceDispatch: when gpulets with rounds, and instances, take requests.
// - Retries and LateRequests: requests that were not served, and those that cannot be in time.
//
// A request whose deadline passes while its batch runs is answered at once; its result is discarded
// later. A gpulet that lost its process takes nothing until set_ready().
//
// Dispatch is pull-based: a gpulet has room for kBatchesInFlight batches (one runs while the next
// is transferred), and each result makes room again. A request or a batch costs time in proportion
// to the number of gpulets of its model and to the logarithm of the number of models of its gpulet.
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/control/node_control.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/protocol/messages.h"
#include "serve/dispatch/instance_dispatch.h"
#include "serve/dispatch/late_requests.h"
#include "serve/dispatch/retries.h"
#include "serve/dispatch/round_dispatch.h"
#include "serve/dispatch/version_lifecycle.h"

namespace gpulet::serve {

class Dispatcher {
 public:
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  // Batches are numbered from `first_batch` on, beyond those of earlier runs of the frontend.
  Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
             BatchId first_batch, const control::Options& control = {});

  // ---- parts

  [[nodiscard]] VersionLifecycle& versions() { return versions_; }
  [[nodiscard]] InstanceDispatch& instances() { return instances_; }
  [[nodiscard]] BatchNumbers& batch_numbers() { return batches_.numbers(); }
  [[nodiscard]] DispatchRecords& records() { return records_; }
  [[nodiscard]] const ModelQueues& queues() const { return queues_; }
  [[nodiscard]] const ServingSlots& slots() const { return slots_; }
  [[nodiscard]] const RoutedGpulets& gpulets() const { return gpulets_; }
  [[nodiscard]] const BatchesInFlight& batches() const { return batches_; }

  // ---- gpulets

  // Puts the routes in force in one step. Gpulets without a route take no new batch and finish what
  // they hold. Gpulets stay ready or not ready; new ones are ready.
  void set_routes(const std::vector<GpuletRoute>& routes, Time now);
  // Whether a gpulet takes batches (its proxy may be restarting).
  void set_ready(GpuletId gpulet, bool ready, Time now);
  // The gpulet is gone. Its requests go back to the queues, or are answered if they cannot.
  void remove(GpuletId gpulet, Time now, DispatchOutput& out);
  // Why no gpulet can become available, to answer requests at their deadline. ok: one may.
  void set_absence(Status why) { absence_ = std::move(why); }
  void completed(const BatchResult& result, Time now, DispatchOutput& out);

  // ---- requests

  // Queues the request, or answers it at once with overloaded.
  void enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out);
  // Answers the request at once with that status, and counts it.
  void refuse(ModelIndex model, Request&& request, Status status, DispatchOutput& out);
  // Forgets the waiting requests of a client that disconnected.
  void client_gone(ClientId client);
  // Forgets one request if it still waits.
  void withdraw(ModelIndex model, ClientId client, std::uint64_t tag);
  // Removes and returns the waiting requests of models that fulfil the predicate, each with its
  // model, without an answer: another frontend serves them.
  [[nodiscard]] std::vector<std::pair<ModelIndex, Request>> take_waiting(
      const std::function<bool(ModelIndex)>& of);

  // ---- time

  // Sends due batches and drops hopeless requests. Call it after events and at next_wake().
  void pump(Time now, DispatchOutput& out);
  // When pump() is due without a further event.
  [[nodiscard]] Time next_wake() const;
  // No request waits or is in flight.
  [[nodiscard]] bool idle() const { return batches_.empty() && queues_.empty(); }

 private:
  void pump_model(ModelIndex model, Time now, DispatchOutput& out);
  void pump_gpulet(GpuletId id, Time now, DispatchOutput& out);
  void note_run(const BatchInFlight& batch, Duration executed, Time now, DispatchOutput& out);
  // Takes the requests from the batch that the node ran it without.
  void take_missing(BatchInFlight& batch, const BatchResult& result, Time now, DispatchOutput& out);
  // The gpulet does not take this frontend's batches (any more).
  void return_elsewhere(BatchInFlight batch, Time now, DispatchOutput& out);
  void take_failure(BatchInFlight batch, const Status& status, FailureCause cause, Time now,
                    DispatchOutput& out);
  void take_outputs(BatchInFlight batch, const BatchResult& result, Time now, DispatchOutput& out);
  void answer_overdue(BatchInFlight& batch, std::size_t index, Time now, DispatchOutput& out);

  ModelQueues queues_;
  Agenda agenda_;
  ServingSlots slots_{queues_, agenda_};
  RoutedGpulets gpulets_{slots_, agenda_};
  BatchesInFlight batches_;
  DispatchRecords records_;
  Answers answers_{queues_, gpulets_, records_};
  BatchSender sender_{queues_, slots_, batches_};
  Retries retries_{queues_, slots_, gpulets_, batches_, answers_, sender_};
  Status absence_;
  LateRequests late_{queues_, slots_, answers_, absence_};
  RoundDispatch rounds_{queues_, slots_, sender_, agenda_};
  InstanceDispatch instances_;
  VersionLifecycle versions_{queues_, slots_, records_, batches_, answers_, sender_};
};

}  // namespace gpulet::serve
