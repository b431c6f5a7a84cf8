// ClusterLink: connects a frontend's core with its cluster. It turns what the Membership says into
// events of the core, log lines and a view for the status. Single-strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/cluster/peers.h"
#include "gpulet/base/status.h"
#include "gpulet/cluster/membership.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// A frontend's cluster, for the status.
struct ClusterView {
  std::string name;
  std::string member;  // this frontend
  cluster::StoreState store = cluster::StoreState::connecting;
  Status store_fault;  // ok: the store is here
  std::vector<cluster::Member> members;
  bool doubtful = false;  // cluster::Doubtful
};

// Reads the files that the configuration names. Fails with the file and the fix.
[[nodiscard]] Result<std::unique_ptr<cluster::Membership>> make_membership(
    net::asio::io_context& io, const config::FrontendConfig& config);

// The configured name, or else the machine's.
[[nodiscard]] std::string member_name(const config::ClusterConfig& cluster);

// Reads the certificates that the configuration names. REQUIRES: config.cluster.
[[nodiscard]] Result<PeersOptions> peers_options(const config::FrontendConfig& config);

class ClusterLink {
 public:
  struct Callbacks {
    std::function<void(serve::FrontendEvent)> deliver;
    std::function<void(const std::vector<cluster::Member>&)> members_changed;
    // The member leads in that term; empty: nobody does. `own`: it is this frontend.
    std::function<void(Term, const std::string& leader, bool own)> leader_changed;
  };

  // Null `membership`: the frontend is alone.
  ClusterLink(const config::FrontendConfig& config, std::unique_ptr<cluster::Membership> membership,
              Callbacks callbacks);

  void start();
  // A backend has accepted this term.
  void on_term(Term term);
  // Gives up the leadership if there are other members. Returns whether there are.
  bool resign();
  // Leaves the cluster, then calls `done`.
  void leave(std::function<void()> done);
  // Null: the frontend is alone.
  [[nodiscard]] const std::optional<ClusterView>& view() const { return view_; }
  // Where clients reach the member; empty: it is not known.
  [[nodiscard]] std::string address_of(const std::string& member) const;

 private:
  void on_event(const cluster::MembershipEvent& event);
  void take(const cluster::Won& event);
  void take(const cluster::Lost& event);
  void take(const cluster::Doubtful& event);
  void take(const cluster::StoreChanged& event);
  void take(const cluster::MembersChanged& event);

  std::unique_ptr<cluster::Membership> membership_;
  const Callbacks callbacks_;
  std::optional<ClusterView> view_;
};

}  // namespace gpulet::frontend
