// Ownership: the leader's side of ownership (docs/cluster.md, "Owners"). It chooses the owner of
// each group of gpulets (serve/cluster/owners.h) and tells it: the backends, so that they accept
// the batches of the owner alone; the owner, with the routes; and all frontends, through the
// RouteTable and ServedModels, where requests go.
//
// The leader keeps all routes in its Dispatcher, and so knows how every model is served. It queues
// no request for a model with another owner. Owners report what they served twice a second; a
// frontend that has reported can become an owner. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "serve/cluster/owners.h"
#include "serve/deploy/deployment.h"
#include "serve/models/model_table.h"
#include "serve/values/reported_figures.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

class Ownership {
 public:
  // All outlive it.
  Ownership(const FrontendOptions& options, BackendRegistry& backends, const ModelTable& models,
            const Deployment& deployment, ReportedFigures& figures, RouteTable& routes)
      : options_(options),
        backends_(backends),
        models_(models),
        deployment_(deployment),
        figures_(figures),
        routes_(routes) {}

  // This frontend leads from now on, or not any more.
  void on_won(Time now);
  void on_lost();

  void on_connected(const std::string& member);
  void on_disconnected(const std::string& member, Time now);
  // REQUIRES: this frontend leads.
  void on_report(const std::string& member, const OwnerReport& report, Time now);

  // Chooses owners anew where something has changed, and tells them. Returns whether the RouteTable
  // changed. `may_move`: for the balance of loads, too. REQUIRES: this frontend leads and knows
  // what runs on the backends.
  bool settle(bool may_move, Time now, FrontendEffects& effects);
  [[nodiscard]] Time next_wake() const;

  // By member; the leader has an empty name.
  [[nodiscard]] std::vector<OwnerStatus> status() const;

 private:
  struct Member {
    Time since{};
    bool draining = false;
    std::set<std::string> nodes;
    std::optional<Time> lost_at{};  // its connection ended
    // Until its first report to this leader, it keeps what an earlier leader gave it.
    std::optional<Time> awaited_until{};
  };
  void start_over();
  [[nodiscard]] static Time given_up_at(const Member& member);
  using NodesRoutes = std::map<std::string, std::vector<Route>>;  // by node

  [[nodiscard]] std::vector<OwnedPart> parts() const;
  // Only the leader serves it: it has controlled cores, processes that start in turns, a version
  // that changes, or a backend without owners.
  [[nodiscard]] bool is_fixed(const GpuletRoute& route) const;
  [[nodiscard]] std::vector<OwnerCandidate> candidates(Time now) const;
  [[nodiscard]] RouteTable::Owners owners_by_model(const std::vector<OwnerGroup>& groups,
                                                   const std::vector<std::string>& owners) const;
  [[nodiscard]] Route route_for(const GpuletRoute& route) const;
  void order_owners(const std::vector<OwnedPart>& parts, const std::vector<OwnerGroup>& groups,
                    const std::vector<std::string>& owners, FrontendEffects& effects);
  void send_routes(const std::vector<OwnerGroup>& groups, const std::vector<std::string>& owners,
                   FrontendEffects& effects);

  const FrontendOptions& options_;
  BackendRegistry& backends_;
  const ModelTable& models_;
  const Deployment& deployment_;
  ReportedFigures& figures_;
  RouteTable& routes_;
  std::map<std::string, Member> members_;  // those that have reported, or are awaited
  std::set<std::string> connected_;
  std::map<std::string, NodesRoutes> sent_;    // by member
  std::vector<std::string> owners_;            // of the groups of the last choice
  std::map<std::string, OwnerStatus> status_;  // by member
  bool changed_ = true;
  std::uint64_t revision_ = 0;  // of the routes of the last choice
  Time next_choice_ = kNever;
};

}  // namespace gpulet::serve
