// Dispatch: the Dispatcher, and what turns its output into effects: batches to backends, replies to
// clients. Pure; one thread at a time.
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
  Dispatch(Dispatcher& dispatcher, ResponseWriter& responses)
      : dispatcher_(dispatcher), responses_(responses) {}

  [[nodiscard]] Dispatcher& dispatcher() { return dispatcher_; }
  [[nodiscard]] ResponseWriter& responses() { return responses_; }
  // Turns what the Dispatcher puts out into effects.
  void write(DispatchOutput&& output, FrontendEffects& effects) {
    responses_.write(std::move(output), effects);
  }

  // Answers the request at once with that status, and counts it.
  void refuse(ModelIndex model, Request&& request, Status status, FrontendEffects& effects) {
    DispatchOutput output;
    dispatcher_.refuse(model, std::move(request), std::move(status), output);
    write(std::move(output), effects);
  }
  // The gpulet is gone.
  void remove(GpuletId gpulet, Time now, FrontendEffects& effects) {
    DispatchOutput output;
    dispatcher_.remove(gpulet, now, output);
    write(std::move(output), effects);
  }

 private:
  Dispatcher& dispatcher_;
  ResponseWriter& responses_;
};

}  // namespace gpulet::serve
