// BackendMessageHandler: handles the messages and disconnections of backends: it has them checked
// and passes each to the component that it concerns. Pure; one thread at a time.
#pragma once

#include "serve/requests/batch_results.h"
#include "serve/requests/gpulet_reports.h"
#include "serve/requests/node_losses.h"
#include "serve/requests/peer_rules.h"

namespace gpulet::serve {

class BackendMessageHandler {
 public:
  // All outlive it.
  struct Components {
    PeerRules& rules;
    BackendSessions& sessions;
    NodeLosses& nodes;
    GpuletReports& gpulets;
    BatchResults& results;
    Probes& probes;
  };

  BackendMessageHandler(const Components& components, const RouteTable& routes)
      : to_(components), routes_(routes) {}

  void on_message(BackendMessageReceived event, Time now, FrontendEffects& effects);
  void on_violation(BackendId backend, const PeerBreach& breach, Time now,
                    FrontendEffects& effects);
  void on_disconnected(BackendId backend, const Status& reason, Time now,
                       FrontendEffects& effects) {
    to_.nodes.on_disconnected(backend, reason, now, effects);
  }
  // As of NodeLosses.
  void tick(Time now, Duration late, FrontendEffects& effects) {
    to_.nodes.tick(now, late, effects);
  }
  // As of GpuletReports; while this frontend leads.
  void retire_unclaimed(Time now, FrontendEffects& effects);
  void give_up_overdue(Duration late, Time now, FrontendEffects& effects);

  [[nodiscard]] const PeerViolations& violations() const { return to_.rules.violations(); }

 private:
  void on(BackendId backend, const Hello& message, Time now, FrontendEffects& effects);
  void on(BackendId backend, GpuletReport message, Time now, FrontendEffects& effects);
  void on(BackendId backend, const BatchResult& message, Time now, FrontendEffects& effects);
  void on(BackendId backend, ModelPieceRequest message, Time now, FrontendEffects& effects);
  void on(BackendId backend, const Heartbeat& message, Time now, FrontendEffects& effects);
  void on(BackendId backend, Draining message, Time now, FrontendEffects& effects);
  void on(BackendId backend, const DeviceReport& message, Time now, FrontendEffects& effects);
  void on(BackendId backend, const BackendState& message, Time now, FrontendEffects& effects);
  void on(BackendId backend, const Superseded& message, Time now, FrontendEffects& effects);

  const Components to_;
  const RouteTable& routes_;
};

}  // namespace gpulet::serve
