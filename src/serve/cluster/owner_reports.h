// OwnerReports: what other owners of gpulets report to the leader about the requests and batches
// that they served. It counts as if this frontend had served them. Pure; one thread at a time.
#pragma once

#include <string>

#include "gpulet/protocol/messages.h"
#include "serve/adapt/feedback.h"
#include "serve/models/failures.h"
#include "serve/values/reported_figures.h"

namespace gpulet::serve {

class OwnerReports {
 public:
  // All outlive it.
  OwnerReports(Demands& demands, const BackendRegistry& backends, const ModelTable& models,
               FailureHandler& failures, Feedback& feedback, ReportedFigures& figures)
      : demands_(demands),
        backends_(backends),
        models_(models),
        failures_(failures),
        feedback_(feedback),
        figures_(figures) {}

  // REQUIRES: this frontend leads.
  void take_in(const std::string& member, const OwnerReport& report, Time now,
               FrontendEffects& effects);

 private:
  Demands& demands_;
  const BackendRegistry& backends_;
  const ModelTable& models_;
  FailureHandler& failures_;
  Feedback& feedback_;
  ReportedFigures& figures_;
};

}  // namespace gpulet::serve
