#include "frontend/cluster/cluster_link.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "frontend/frames/connection_options.h"
#include "gpulet/cluster/etcd/membership.h"
#include "gpulet/net/tls.h"

namespace gpulet::frontend {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "frontend";
  return name.data();
}

std::string peer_address(const config::ClusterConfig& cluster) {
  if (!cluster.peer_address.empty()) return cluster.peer_address;
  if (config::is_loopback(cluster.peer_listen)) return config::to_string(cluster.peer_listen);
  return config::to_string({host_name(), cluster.peer_listen.port});
}

// Without the end of the last line.
Result<std::string> read_password(const std::filesystem::path& file) {
  Result<std::string> text = net::read_secret(file);
  if (!text.ok()) return text;
  while (!text.value().empty() && (text.value().back() == '\n' || text.value().back() == '\r'))
    text.value().pop_back();
  return text;
}

}  // namespace

std::string member_name(const config::ClusterConfig& cluster) {
  return cluster.member.empty() ? host_name() : cluster.member;
}

Result<std::unique_ptr<cluster::Membership>> make_membership(net::asio::io_context& io,
                                                             const config::FrontendConfig& config) {
  if (!config.cluster) return std::unique_ptr<cluster::Membership>();
  const config::ClusterConfig& from = *config.cluster;
  cluster::EtcdOptions options;
  for (const config::Endpoint& endpoint : from.etcd)
    options.endpoints.push_back(config::to_string(endpoint));
  options.prefix = from.prefix.empty() ? "/gpulet/" + from.name + "/" : from.prefix;
  options.cluster = from.name;
  options.self.name = member_name(from);
  options.self.address =
      from.address.empty() ? config::to_string({host_name(), config.listen.port}) : from.address;
  options.self.peer = peer_address(from);
  options.lease = from.lease;
  options.user = from.user;
  if (!from.user.empty()) {
    Result<std::string> password = read_password(from.password_file);
    if (!password.ok()) return password.status().within("cluster/password_file");
    options.password = std::move(password).value();
  }
  if (from.tls) {
    Result<net::TlsTexts> texts = net::read_tls_texts(*from.tls);
    if (!texts.ok()) return texts.status().within("cluster/tls");
    options.tls = {texts.value().authority, texts.value().certificate, texts.value().key};
  }
  return cluster::make_etcd_membership(io, std::move(options));
}

Result<PeersOptions> peers_options(const config::FrontendConfig& config) {
  const config::ClusterConfig& from = *config.cluster;
  PeersOptions options;
  options.cluster = from.name;
  options.member = member_name(from);
  options.listen = from.peer_listen;
  options.connection = backend_options(config);
  options.listener = backend_listener_options(nullptr);
  if (!from.peer_tls) return options;
  Result<net::TlsContextPointer> server = net::TlsContext::server(*from.peer_tls);
  if (!server.ok()) return server.status().within("cluster/peer_tls");
  options.listener.tls = std::move(server).value();
  Result<net::TlsContextPointer> client = net::TlsContext::client(*from.peer_tls);
  if (!client.ok()) return client.status().within("cluster/peer_tls");
  options.client_tls = std::move(client).value();
  return options;
}

ClusterLink::ClusterLink(const config::FrontendConfig& config,
                         std::unique_ptr<cluster::Membership> membership, EventSink& events,
                         Listener& listener)
    : membership_(std::move(membership)), events_(events), listener_(listener) {
  if (membership_ == nullptr) return;
  ClusterView& view = view_.emplace();
  view.name = config.cluster->name;
  view.member = member_name(*config.cluster);
}

void ClusterLink::start() {
  if (membership_ == nullptr) return;
  membership_->start([this](const cluster::MembershipEvent& event) { on_event(event); });
}

void ClusterLink::on_term(Term term) {
  if (membership_ != nullptr) membership_->on_term(term);
}

bool ClusterLink::resign() {
  if (membership_ == nullptr || view_->members.size() < 2) return false;
  membership_->resign();
  return true;
}

void ClusterLink::leave(Done done) {
  if (membership_ == nullptr) return done();
  membership_->leave(std::move(done));
}

void ClusterLink::on_event(const cluster::MembershipEvent& event) {
  std::visit([this](const auto& one) { take(one); }, event);
}

void ClusterLink::take(const cluster::Won& event) {
  view_->doubtful = false;
  listener_.leader_changed(event.term, view_->member, true);
  events_.deliver(serve::LeadershipWon{event.term});
}

void ClusterLink::take(const cluster::Lost& event) {
  view_->doubtful = false;
  listener_.leader_changed(event.term, event.leader.name, false);
  events_.deliver(serve::LeadershipLost{event.leader.name, event.leader.address});
}

void ClusterLink::take(const cluster::Doubtful& event) {
  view_->doubtful = event.doubtful;
  events_.deliver(serve::LeadershipDoubted{event.doubtful});
}

void ClusterLink::take(const cluster::StoreChanged& event) {
  view_->store = event.state;
  view_->store_fault = event.why;
  if (event.state == cluster::StoreState::here) {
    spdlog::info("cluster {}: the store is here", view_->name);
  } else {
    spdlog::warn("cluster {}: the store is {}: {}", view_->name, cluster::to_string(event.state),
                 event.why.message());
  }
}

void ClusterLink::take(const cluster::MembersChanged& event) {
  view_->members = event.members;
  listener_.members_changed(event.members);
  spdlog::info("cluster {}: {} members", view_->name, event.members.size());
}

std::string ClusterLink::address_of(const std::string& member) const {
  if (!view_) return {};
  const auto found = std::find_if(view_->members.begin(), view_->members.end(),
                                  [&](const cluster::Member& one) { return one.name == member; });
  return found == view_->members.end() ? std::string() : found->address;
}

}  // namespace gpulet::frontend
