// Dispatch: the queues of requests, and what leaves them: batches to backends, replies to clients.
// Pure; one thread at a time.
#pragma once

#include <utility>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "serve/deploy/response_writer.h"
#include "serve/dispatch/dispatcher.h"

namespace gpulet::serve {

class Dispatch {
 public:
  // Both outlive it.
  Dispatch(Dispatcher& queues, ResponseWriter& responses)
      : queues_(queues), responses_(responses) {}

  [[nodiscard]] Dispatcher& queues() { return queues_; }
  [[nodiscard]] const Dispatcher& queues() const { return queues_; }
  [[nodiscard]] ResponseWriter& responses() { return responses_; }
  // Turns what the queues put out into effects.
  void write(DispatchOutput&& output, FrontendEffects& effects) {
    responses_.write(std::move(output), effects);
  }

  // Answers the request at once with that status, and counts it.
  void refuse(ModelIndex model, Request&& request, Status status, FrontendEffects& effects) {
    DispatchOutput output;
    queues_.refuse(model, std::move(request), std::move(status), output);
    write(std::move(output), effects);
  }
  // The gpulet is gone.
  void remove(GpuletId gpulet, Time now, FrontendEffects& effects) {
    DispatchOutput output;
    queues_.remove(gpulet, now, output);
    write(std::move(output), effects);
  }

 private:
  Dispatcher& queues_;
  ResponseWriter& responses_;
};

}  // namespace gpulet::serve
