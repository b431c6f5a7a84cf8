// The parts of a Dispatcher, wired as it wires them, for tests of a single part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpulet/control/node_control.h"
#include "serve/dispatch/instance_dispatch.h"
#include "serve/dispatch/late_requests.h"
#include "serve/dispatch/retries.h"
#include "serve/dispatch/round_dispatch.h"
#include "serve/dispatch/version_lifecycle.h"
#include "tests/support/serve/dispatched.h"

namespace gpulet::serve::testing {

struct DispatchParts {
  explicit DispatchParts(std::vector<ServedModel> models, control::Options options = {})
      : control(std::move(options)) {
    for (ServedModel& model : models) versions.add(std::move(model));
  }

  // The request waits for the model.
  void push(ModelIndex model, Request request) {
    queues.of(model).requests.push(std::move(request));
    slots.arrived(model);
  }
  // The request waits to run alone.
  void push_suspect(ModelIndex model, Request request) {
    queues.of(model).suspects.push(std::move(request));
    slots.arrived(model);
  }
  // REQUIRES: the gpulet has a slot for the model.
  [[nodiscard]] ServingSlot slot(std::uint64_t gpulet, ModelIndex model) const {
    for (const ServingSlot& one : slots.of(model)) {
      if (one.id == GpuletId{gpulet}) return one;
    }
    return {};
  }
  [[nodiscard]] RoutedGpulet& gpulet(std::uint64_t id) { return *gpulets.find(GpuletId{id}); }
  // Sends the first `count` requests of the model to the gpulet.
  [[nodiscard]] Batch send(std::uint64_t gpulet, ModelIndex model, std::size_t count, Time now) {
    DispatchOutput out;
    sender.send_next(slot(gpulet, model), count, now, out);
    return std::move(out.batches.at(0).batch);
  }
  // The gpulet does not hold the batch any more.
  [[nodiscard]] BatchInFlight finish(BatchId id, bool executed, Time now) {
    BatchInFlight batch = batches.take(id);
    gpulets.release(batch, executed, now);
    return batch;
  }
  // Takes all models that the next pump would consider, ascending.
  std::vector<ModelIndex> take_touched() {
    std::vector<ModelIndex> touched;
    while (const auto model = agenda.take_model()) touched.push_back(*model);
    std::sort(touched.begin(), touched.end());
    return touched;
  }

  control::Options control;
  ModelQueues queues{1000};
  Agenda agenda;
  ServingSlots slots{queues, agenda};
  RoutedGpulets gpulets{slots, agenda};
  BatchesInFlight batches{BatchId{1}};
  DispatchRecords records;
  Answers answers{queues, gpulets, records};
  BatchSender sender{queues, slots, batches};
  Retries retries{queues, slots, gpulets, batches, answers, sender};
  Status absence;
  LateRequests late{queues, slots, answers, absence};
  RoundDispatch rounds{queues, slots, sender, agenda};
  InstanceDispatch instances{control, {queues, slots, gpulets, records, batches, sender}};
  VersionLifecycle versions{queues, slots, records, batches, answers, sender};
};

// The tags of the requests, in their order.
[[nodiscard]] inline std::vector<std::uint64_t> tags_of(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> tags;
  for (const Request& request : requests) tags.push_back(request.tag);
  return tags;
}
[[nodiscard]] inline std::vector<std::uint64_t> tags_of(const std::vector<Answer>& answers) {
  std::vector<std::uint64_t> tags;
  for (const Answer& answer : answers) tags.push_back(answer.request.tag);
  return tags;
}

}  // namespace gpulet::serve::testing
