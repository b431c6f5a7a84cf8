// ClusterReporter: this frontend and the others of its cluster, for the status. It changes nothing.
// Pure; one thread at a time.
#pragma once

#include "gpulet/serve/values/frontend_status.h"
#include "serve/cluster/leadership.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/cluster/ownership.h"

namespace gpulet::serve {

class ClusterReporter {
 public:
  // All outlive it.
  ClusterReporter(const FrontendOptions& options, const Leadership& leadership,
                  const Forwarder& forwarder, const Ownership& ownership, const OwnedGpulets& owned,
                  const ServingPlan& in_force)
      : options_(options),
        leadership_(leadership),
        forwarder_(forwarder),
        ownership_(ownership),
        owned_(owned),
        in_force_(in_force) {}

  [[nodiscard]] bool leads() const { return leadership_.leads(); }
  void add_to(FrontendStatus& status) const;
  // The owners of the model's gpulets, while this frontend leads.
  void add_to(ModelStatus& status) const;

 private:
  const FrontendOptions& options_;
  const Leadership& leadership_;
  const Forwarder& forwarder_;
  const Ownership& ownership_;
  const OwnedGpulets& owned_;
  const ServingPlan& in_force_;
};

}  // namespace gpulet::serve
