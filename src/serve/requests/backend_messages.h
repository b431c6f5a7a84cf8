// BackendMessageHandler: handles the messages and disconnections of backends. It enforces the rules
// for messages, updates the BackendRegistry, the Dispatcher and the Deployment, and requests plans
// where nodes, devices or gpulets come and go. Pure; one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <map>

#include "gpulet/observe/log_limiter.h"
#include "serve/adapt/probes.h"
#include "serve/cluster/leadership.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/dispatch/owner_figures.h"

namespace gpulet::serve {

class BackendMessageHandler {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    BackendRegistry& backends;
    const ProfilesInForce& profiles;
    ModelRegistry& models;
    Exclusions& exclusions;
    FailureHandler& failures;
    Deployment& deployment;
    Leadership& leadership;
    OwnedGpulets& owned;
    OwnerFigures& figures;
    Feedback& feedback;
    Estimates& estimates;
    Probes& probes;
    PlanRequests& plan_requests;
    EventLog& log;
    ResponseWriter& responses;
  };

  BackendMessageHandler(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  void on_message(BackendMessageReceived event, Time now, FrontendEffects& effects);
  void on_violation(BackendId backend, const PeerBreach& breach, Time now,
                    FrontendEffects& effects);
  void on_disconnected(BackendId backend, const Status& reason, Time now, FrontendEffects& effects);
  // Disconnects silent backends and sends heartbeats to the others. `late`: how long this frontend
  // stood still when it was to tick. What backends sent meanwhile may not have been read yet.
  void tick(Time now, Duration late, FrontendEffects& effects);
  // Retires the gpulets that backends brought and that no plan took up in time.
  void retire_unclaimed(Time now, FrontendEffects& effects);
  // Gives up gpulets that do not load in their time, and those that do not answer their batches.
  // `late`: as of tick().
  void give_up_overdue(Duration late, Time now, FrontendEffects& effects);
  // Tells the Dispatcher whether waiting requests can hope for a device.
  void update_absence();

  [[nodiscard]] const PeerViolations& violations() const { return violations_; }

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
  // The report counts, with the state that it has: probes that held it back have ended.
  void take_in(BackendId backend, const GpuletReport& message, Time now, FrontendEffects& effects);
  // Estimates follow what the backend runs, from the plans of an earlier leader.
  void adopt_estimates(BackendId backend, const std::vector<GpuletReport>& gpulets);
  // Notes what the model's library said of a failed batch.
  void note_detail(const BatchResult& result, Time now, FrontendEffects& effects);
  // The gpulet failed or ended.
  void lose_gpulet(const GpuletRecord& gpulet, const GpuletReport& report, Time now,
                   FrontendEffects& effects);

  const FrontendOptions& options_;
  const Dependencies core_;

  std::map<GpuletId, Time> lost_process_;  // that have not said since that they serve again
  PeerViolations violations_{};
  std::array<Time, kPeerViolations> violation_noted_{};  // when the last one of each was logged
  // By model: clients cause these notes.
  observe::LogRateLimiter details_{{.burst = 3, .interval = std::chrono::seconds(20)}};
};

}  // namespace gpulet::serve
