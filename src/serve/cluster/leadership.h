// Leadership: whether this frontend commands the backends, and under which term.
//
// A standalone frontend leads from its start. One of a cluster (FrontendOptions::clustered) leads
// between LeadershipWon and LeadershipLost. A frontend that does not lead plans nothing, commands
// nothing by itself, and serves the gpulets that the leader gives it
// (serve/cluster/owned_gpulets.h). Pure; one thread at a time.
#pragma once

#include <string>

#include "serve/cluster/forwarder.h"
#include "serve/cluster/takeover.h"

namespace gpulet::serve {

class Leadership {
 public:
  // All outlive it.
  Leadership(const FrontendOptions& options, Dispatcher& dispatcher, BackendRegistry& backends,
             Deployment& deployment, Takeover& takeover, Forwarder& forwarder, Journal& journal);

  [[nodiscard]] bool leads() const { return forwarder_.routes().leads(); }
  // Another frontend may lead by now: plans that can wait do.
  [[nodiscard]] bool doubtful() const { return doubtful_; }
  // It leads, but does not know yet what runs on each backend.
  [[nodiscard]] bool taking_over(Time now) const;
  [[nodiscard]] LeadershipStatus status() const;

  void on_won(const LeadershipWon& event, Time now, FrontendEffects& effects);
  // Returns whether this frontend led. What waits for models that it served is to be handed on.
  [[nodiscard]] bool on_lost(const LeadershipLost& event, Time now, FrontendEffects& effects);
  void on_doubted(const LeadershipDoubted& event, Time now, FrontendEffects& effects);

  // Gives the waiting requests for models that another frontend serves to that one.
  void hand_on(Time now, FrontendEffects& effects);

 private:
  const FrontendOptions& options_;
  Dispatcher& dispatcher_;
  BackendRegistry& backends_;
  Deployment& deployment_;
  Takeover& takeover_;
  Forwarder& forwarder_;
  Journal& journal_;
  bool doubtful_ = false;
  Time won_at_{};
  std::string leader_;  // the member that leads instead, with its address; empty: unknown
};

}  // namespace gpulet::serve
