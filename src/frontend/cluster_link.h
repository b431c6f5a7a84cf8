// ClusterLink: connects a frontend's core with its cluster. It turns what the Membership says into
// events of the core, log lines and a view for the status. Single-strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/cluster/membership.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/frontend_events.h"

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

class ClusterLink {
 public:
  using Deliver = std::function<void(serve::FrontendEvent)>;

  // Null `membership`: the frontend is alone.
  ClusterLink(const config::FrontendConfig& config, std::unique_ptr<cluster::Membership> membership,
              Deliver deliver);

  void start();
  // A backend has accepted this term.
  void on_term(Term term);
  // Leaves the cluster, then calls `done`.
  void leave(std::function<void()> done);
  // Null: the frontend is alone.
  [[nodiscard]] const std::optional<ClusterView>& view() const { return view_; }

 private:
  void on_event(const cluster::MembershipEvent& event);
  void take(const cluster::Won& event);
  void take(const cluster::Lost& event);
  void take(const cluster::Doubtful& event);
  void take(const cluster::StoreChanged& event);
  void take(const cluster::MembersChanged& event);

  std::unique_ptr<cluster::Membership> membership_;
  Deliver deliver_;
  std::optional<ClusterView> view_;
};

}  // namespace gpulet::frontend
