// Leadership: whether this frontend commands the backends, and under which term.
//
// A standalone frontend leads from its start. One of a cluster (FrontendOptions::clustered) leads
// between LeadershipWon and LeadershipLost. The leader takes every backend that joins
// (TakeLeadership), and goes on with the gpulets that the backend then lists (BackendState). A
// backend that has accepted a higher term executes none of its commands (node/fence.h); it then
// counts as taken by another frontend. A frontend that does not lead plans nothing, commands
// nothing by itself, and serves the gpulets that the leader gives it
// (serve/cluster/owned_gpulets.h). Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "serve/cluster/forwarder.h"
#include "serve/plans/rollout.h"

namespace gpulet::serve {

class Leadership {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    BackendRegistry& backends;
    ModelRegistry& models;
    Deployment& deployment;
    RolloutController& rollouts;
    PlanRequests& plan_requests;
    EventLog& log;
    ResponseWriter& responses;
    RouteTable& routes;
    Forwarder& forwarder;
  };

  Leadership(const FrontendOptions& options, const Dependencies& dependencies);

  [[nodiscard]] bool leads() const { return core_.routes.leads(); }
  // Another frontend may lead by now: plans that can wait do.
  [[nodiscard]] bool doubtful() const { return doubtful_; }
  // It leads, but does not know yet what runs on each backend.
  [[nodiscard]] bool taking_over(Time now) const;
  [[nodiscard]] LeadershipStatus status() const;

  void on_won(const LeadershipWon& event, Time now, FrontendEffects& effects);
  void on_lost(LeadershipLost event, Time now, FrontendEffects& effects);
  void on_doubted(const LeadershipDoubted& event, Time now, FrontendEffects& effects);

  // Gives the waiting requests for models that another frontend serves to that one.
  void hand_on(Time now, FrontendEffects& effects);

  // A backend joined that has accepted `highest`.
  void on_joined(BackendId backend, Term highest, FrontendEffects& effects);
  // The backend accepted this frontend's term and lists what runs there.
  void on_state(BackendId backend, const BackendState& state, Time now, FrontendEffects& effects);
  // The backend obeys another frontend.
  void on_superseded(BackendId backend, Term term, Time now, FrontendEffects& effects);
  // Adds the gpulets that a backend brought, and serves with those that fit.
  void take_over(BackendId backend, const std::vector<GpuletReport>& gpulets, Time now,
                 FrontendEffects& effects);

 private:
  void take(BackendId backend, FrontendEffects& effects);
  void take_all(FrontendEffects& effects);

  const FrontendOptions& options_;
  const Dependencies core_;
  bool doubtful_ = false;
  Time won_at_{};
  std::string leader_;  // the member that leads instead, with its address; empty: unknown
  std::uint64_t superseded_ = 0;
};

}  // namespace gpulet::serve
