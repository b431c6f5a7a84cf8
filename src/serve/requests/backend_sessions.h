// BackendSessions: backends join, tell what they run, and leave. Pure; one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "serve/adapt/probes.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/cluster/takeover.h"
#include "serve/deploy/backoff.h"

namespace gpulet::serve {

class BackendSessions {
 public:
  // All outlive it.
  BackendSessions(const FrontendOptions& options, BackendRegistry& backends, Exclusions& exclusions,
                  Takeover& takeover, OwnedGpulets& owned, Probes& probes, Journal& journal)
      : options_(options),
        backends_(backends),
        exclusions_(exclusions),
        takeover_(takeover),
        owned_(owned),
        probes_(probes),
        journal_(journal) {}

  // The violation that the message is; empty: the backend has joined, or was refused.
  [[nodiscard]] std::optional<PeerBreach> on_hello(BackendId backend, const Hello& hello, Time now,
                                                   FrontendEffects& effects);
  // The violation that the message is; empty: none.
  [[nodiscard]] std::optional<PeerBreach> on_state(BackendId backend, const BackendState& state,
                                                   Time now, FrontendEffects& effects);
  void on_superseded(BackendId backend, const Superseded& message, Time now,
                     FrontendEffects& effects);
  // A gpulet's report. Returns false where it does not count (yet): the gpulet is not this
  // frontend's, or is being probed.
  [[nodiscard]] bool admits(BackendId backend, GpuletReport& report, Time now,
                            FrontendEffects& effects);
  // The connection to the node ended.
  void left(BackendId backend, const std::string& node, const Status& reason, Time now);

 private:
  const FrontendOptions& options_;
  BackendRegistry& backends_;
  Exclusions& exclusions_;
  Takeover& takeover_;
  OwnedGpulets& owned_;
  Probes& probes_;
  Journal& journal_;
};

}  // namespace gpulet::serve
