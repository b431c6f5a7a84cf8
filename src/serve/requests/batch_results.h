// BatchResults: the results of batches that backends send. Pure; one thread at a time.
#pragma once

#include <chrono>
#include <vector>

#include "gpulet/observe/log_limiter.h"
#include "serve/adapt/feedback.h"
#include "serve/deploy/dispatch.h"
#include "serve/dispatch/owner_figures.h"
#include "serve/models/failures.h"

namespace gpulet::serve {

class BatchResults {
 public:
  // All outlive it.
  BatchResults(Dispatch& dispatch, FailureHandler& failures, Feedback& feedback,
               OwnerFigures& figures, Journal& journal)
      : dispatch_(dispatch),
        failures_(failures),
        feedback_(feedback),
        figures_(figures),
        journal_(journal) {}

  // `leads`: this frontend leads, and so decides about failures. Returns the processes that ended.
  std::vector<ProcessLost> take_in(const BatchResult& message, bool leads, Time now,
                                   FrontendEffects& effects);

 private:
  // Notes what the model's library said of a failed batch.
  void note_detail(const BatchResult& result, Time now, FrontendEffects& effects);

  Dispatch& dispatch_;
  FailureHandler& failures_;
  Feedback& feedback_;
  OwnerFigures& figures_;
  Journal& journal_;
  // By model: clients cause these notes.
  observe::LogRateLimiter details_{{.burst = 3, .interval = std::chrono::seconds(20)}};
};

}  // namespace gpulet::serve
