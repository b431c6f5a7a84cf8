// TroubleReporter: violations of backends, failures, and problems of files, for the status. It
// changes nothing. Pure; one thread at a time.
#pragma once

#include "gpulet/serve/values/frontend_status.h"
#include "serve/models/failures.h"
#include "serve/requests/catalogue_update.h"
#include "serve/requests/peer_rules.h"
#include "serve/values/file_problems.h"

namespace gpulet::serve {

class TroubleReporter {
 public:
  // All outlive it.
  TroubleReporter(const PeerRules& rules, const Exclusions& exclusions,
                  const FailureHandler& failures, const FileProblems& file_problems,
                  const CatalogueUpdate& catalogue)
      : rules_(rules),
        exclusions_(exclusions),
        failures_(failures),
        file_problems_(file_problems),
        catalogue_(catalogue) {}

  void add_to(FrontendStatus& status) const {
    status.violations = rules_.violations();
    status.exclusions = exclusions_.in_force();
    status.failures = failures_.counts();
    status.unloaded = catalogue_.unloaded();
    status.file_problems = file_problems_.all();
  }

 private:
  const PeerRules& rules_;
  const Exclusions& exclusions_;
  const FailureHandler& failures_;
  const FileProblems& file_problems_;
  const CatalogueUpdate& catalogue_;
};

}  // namespace gpulet::serve
