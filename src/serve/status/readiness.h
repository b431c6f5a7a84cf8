// Readiness: whether this frontend serves requests now. Pure; one thread at a time.
#pragma once

#include <string>

#include "serve/cluster/leadership.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/requests/admission.h"

namespace gpulet::serve {

class Readiness {
 public:
  // All outlive it.
  Readiness(const Admission& admission, const Leadership& leadership, const Forwarder& forwarder,
            const OwnedGpulets& owned, const Deployment& deployment,
            const BackendRegistry& backends)
      : admission_(admission),
        leadership_(leadership),
        forwarder_(forwarder),
        owned_(owned),
        deployment_(deployment),
        backends_(backends) {}

  // As FrontendCore::serving().
  [[nodiscard]] bool serving() const;
  // As FrontendStatus::state.
  [[nodiscard]] std::string state() const;

 private:
  const Admission& admission_;
  const Leadership& leadership_;
  const Forwarder& forwarder_;
  const OwnedGpulets& owned_;
  const Deployment& deployment_;
  const BackendRegistry& backends_;
};

}  // namespace gpulet::serve
