// PeerRules: checks the messages of backends, and counts and reports violations
// (serve/deploy/backend_registry.h). Pure; one thread at a time.
#pragma once

#include <array>
#include <optional>

#include "serve/deploy/backend_registry.h"
#include "serve/deploy/plan_requests.h"
#include "serve/dispatch/batches_in_flight.h"

namespace gpulet::serve {

class PeerRules {
 public:
  // All outlive it.
  PeerRules(BackendRegistry& backends, const BatchesInFlight& batches, Journal& journal)
      : backends_(backends), batches_(batches), journal_(journal) {}

  // A message arrived. Returns the violation that it is. Empty: it is allowed, and the backend is
  // not silent.
  [[nodiscard]] std::optional<PeerBreach> check(const BackendMessageReceived& event, Time now);
  // Counts the violation, and disconnects the backend. Returns whether it had joined; if not, the
  // violation is noted here.
  [[nodiscard]] bool end_connection(BackendId backend, const PeerBreach& breach, Time now,
                                    FrontendEffects& effects);

  [[nodiscard]] const PeerViolations& violations() const { return violations_; }

 private:
  BackendRegistry& backends_;
  const BatchesInFlight& batches_;
  Journal& journal_;
  PeerViolations violations_{};
  std::array<Time, kPeerViolations> noted_{};  // when the last one of each was logged
};

}  // namespace gpulet::serve
