// ClusterLink: connects a frontend's core with its cluster. It turns what the Membership says into
// events of the core, log lines and a view for the status. Single-strand.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/cluster/peers.h"
#include "frontend/loop/done.h"
#include "frontend/loop/event_sink.h"
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
  // Told before the engine.
  class Listener {
   public:
    virtual void members_changed(const std::vector<cluster::Member>& members) = 0;
    // The member leads in that term; empty: nobody does. `own`: it is this frontend.
    virtual void leader_changed(Term term, const std::string& leader, bool own) = 0;

   protected:
    ~Listener() = default;
  };

  // Null `membership`: the frontend is alone. `events` and `listener` must outlive this object.
  ClusterLink(const config::FrontendConfig& config, std::unique_ptr<cluster::Membership> membership,
              EventSink& events, Listener& listener);

  void start();
  // A backend has accepted this term.
  void on_term(Term term);
  // Gives up the leadership if there are other members. Returns whether there are.
  bool resign();
  // Leaves the cluster, then calls `done`.
  void leave(Done done);
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
  EventSink& events_;
  Listener& listener_;
  std::optional<ClusterView> view_;
};

}  // namespace gpulet::frontend
