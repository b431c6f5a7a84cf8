// PeerEvents: handles what comes from the other frontends of the cluster, and tells the leader what
// this one serves (OwnerReport). Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gpulet/base/time.h"
#include "gpulet/serve/values/frontend_events.h"
#include "serve/cluster/forwarder.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/cluster/owner_reports.h"
#include "serve/cluster/ownership.h"
#include "serve/deploy/backend_connections.h"

namespace gpulet::serve {

class PeerEvents {
 public:
  // All outlive it.
  PeerEvents(Forwarder& forwarder, OwnedGpulets& owned, Ownership& ownership, OwnerReports& reports,
             const BackendConnections& backends)
      : forwarder_(forwarder),
        owned_(owned),
        ownership_(ownership),
        reports_(reports),
        backends_(backends) {}

  void on(const PeerConnected& event, Time now, FrontendEffects& effects);
  void on(const PeerDisconnected& event, Time now, FrontendEffects& effects);
  void on(PeerReplied event, Time now, FrontendEffects& effects);
  void on(const PeerWantsRows& event, Time now, FrontendEffects& effects);
  void on(PeerServes event, Time now, FrontendEffects& effects);
  void on(RoutesReceived event, Time now, FrontendEffects& effects);
  void on(const OwnerReported& event, Time now, FrontendEffects& effects);

  // The gpulets that this frontend owns may have changed: so has the place of requests that wait.
  void follow_owned(Time now, FrontendEffects& effects);
  // This frontend is about to stop: from now on its reports say so.
  void start_draining() { draining_ = true; }
  // Does nothing while this frontend leads, or no leader that takes reports is connected.
  void report_to_leader(FrontendEffects& effects);

 private:
  Forwarder& forwarder_;
  OwnedGpulets& owned_;
  Ownership& ownership_;
  OwnerReports& reports_;
  const BackendConnections& backends_;
  std::map<std::string, std::uint32_t> levels_;  // of the members that were connected
  bool draining_ = false;
};

// An event that PeerEvents handles.
template <typename Event>
concept PeerEvent = requires(PeerEvents& peers, Event event, Time now, FrontendEffects& effects) {
  peers.on(std::move(event), now, effects);
};

}  // namespace gpulet::serve
