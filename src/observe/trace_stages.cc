#include <algorithm>

#include "gpulet/observe/trace.h"

namespace gpulet::observe {
namespace {

// As much of it as is left.
Duration take(Duration& left, Duration wanted) {
  const Duration taken = std::clamp(wanted, Duration::zero(), left);
  left -= taken;
  return taken;
}

}  // namespace

RequestStages stages_of(const RequestTrace& trace) {
  RequestStages stages;
  Duration left = std::max(Duration::zero(), trace.answered - trace.arrived);
  if (trace.dispatched == Time()) {  // it was never sent; applications tell what ran for them
    stages.execution = take(left, trace.executed);
    stages.queue = left;
    return stages;
  }
  stages.queue = take(left, trace.dispatched - trace.arrived);
  stages.execution = take(left, trace.executed);
  stages.wait = take(left, trace.queued_at_backend);
  stages.transfer = left / 2;
  stages.answer = left - stages.transfer;
  return stages;
}

}  // namespace gpulet::observe
