#include "simulate/virtual_links.h"

#include <algorithm>
#include <utility>

namespace gpulet::simulate {

void VirtualLinks::connect(NodeIndex node, FrontendIndex frontend) {
  if (!ends_.frontend_runs(frontend)) return;
  const std::uint64_t id = next_connection_++;
  nodes_[node][frontend] = {FrontendId{id}, BackendId{id}, false};
  node_of_connection_.emplace(BackendId{id}, node);
  ends_.feed_node(node, node::FrontendConnected{FrontendId{id}});
}

void VirtualLinks::connect_later(NodeIndex node, FrontendIndex frontend) {
  agenda_.call_at(agenda_.now() + 2 * latency_, [this, node, frontend] {
    if (ends_.node_runs(node)) connect(node, frontend);
  });
}

void VirtualLinks::disconnect(NodeIndex node, FrontendIndex frontend, const Status& why) {
  const Link link = std::exchange(nodes_[node][frontend], Link{});
  if (link.frontend == FrontendId{}) return;
  agenda_.call_at(arrival(), [this, node, frontend, link, why] {
    if (ends_.node_runs(node)) ends_.feed_node(node, node::FrontendDisconnected{link.frontend});
    ends_.feed_frontend(frontend, serve::BackendDisconnected{link.backend, why});
  });
}

void VirtualLinks::disconnect_node(NodeIndex node, const Status& why) {
  for (FrontendIndex i = 0; i < nodes_[node].size(); ++i) disconnect(node, i, why);
}

void VirtualLinks::disconnect_frontend(FrontendIndex frontend, const Status& why) {
  for (NodeIndex node = 0; node < nodes_.size(); ++node) disconnect(node, frontend, why);
}

std::optional<NodeIndex> VirtualLinks::node_of(FrontendIndex frontend, BackendId id) const {
  const auto found = node_of_connection_.find(id);
  if (found == node_of_connection_.end()) return std::nullopt;
  if (nodes_[found->second][frontend].backend != id) return std::nullopt;
  return found->second;
}

FrontendIndex VirtualLinks::frontend_of(NodeIndex node, FrontendId connection) const {
  const std::vector<Link>& links = nodes_[node];
  return static_cast<FrontendIndex>(
      std::find_if(links.begin(), links.end(),
                   [&](const Link& link) { return link.frontend == connection; }) -
      links.begin());
}

void VirtualLinks::send(FrontendIndex from, BackendId to, BackendCommand command) {
  const std::optional<NodeIndex> node = node_of(from, to);
  if (!node) return;
  to_nodes_.push_back({{arrival(), agenda_.next_order()},
                       *node,
                       from,
                       nodes_[*node][from].frontend,
                       std::move(command)});
}

void VirtualLinks::send_file(FrontendIndex from, BackendId to, const std::string& sha256) {
  const std::optional<NodeIndex> node = node_of(from, to);
  if (!node) return;
  agenda_.call_at(arrival(), [this, node = *node, name = sha256] {
    if (ends_.node_runs(node)) ends_.feed_node(node, node::ModelStored{name, "/store/" + name});
  });
}

void VirtualLinks::close(FrontendIndex frontend, BackendId node_id) {
  const std::optional<NodeIndex> node = node_of(frontend, node_id);
  if (!node) return;
  const Link link = nodes_[*node][frontend];
  if (link.cut) return;
  nodes_[*node][frontend] = {};
  agenda_.call_at(arrival(), [this, node = *node, frontend, link] {
    if (!ends_.node_runs(node)) return;
    ends_.feed_node(node, node::FrontendDisconnected{link.frontend});
    connect(node, frontend);
  });
}

bool VirtualLinks::connects(NodeIndex node, FrontendId connection) const {
  return frontend_of(node, connection) < nodes_[node].size();
}

void VirtualLinks::send(NodeIndex from, FrontendId to, BackendMessage message) {
  const FrontendIndex frontend = frontend_of(from, to);
  if (frontend == nodes_[from].size()) return;
  to_frontends_.push_back(
      {{arrival(), agenda_.next_order()}, from, frontend, to, std::move(message)});
}

void VirtualLinks::close(NodeIndex node, FrontendId connection, const Status& why) {
  const FrontendIndex frontend = frontend_of(node, connection);
  if (frontend == nodes_[node].size()) return;
  const bool cut = nodes_[node][frontend].cut;
  disconnect(node, frontend, why);
  if (!cut) connect_later(node, frontend);
}

std::optional<Due> VirtualLinks::next_command() const {
  return to_nodes_.empty() ? std::nullopt : std::optional(to_nodes_.front().due);
}

std::optional<Due> VirtualLinks::next_message() const {
  return to_frontends_.empty() ? std::nullopt : std::optional(to_frontends_.front().due);
}

template <typename Message>
bool VirtualLinks::arrives(const InTransit<Message>& sent) const {
  const Link& link = nodes_[sent.node][sent.frontend];
  return ends_.node_runs(sent.node) && link.frontend == sent.connection && !link.cut;
}

void VirtualLinks::deliver_command() {
  InTransit<BackendCommand> sent = std::move(to_nodes_.front());
  to_nodes_.pop_front();
  if (arrives(sent)) ends_.command_node(sent.node, sent.connection, std::move(sent.message));
}

void VirtualLinks::deliver_message() {
  InTransit<BackendMessage> sent = std::move(to_frontends_.front());
  to_frontends_.pop_front();
  if (!arrives(sent)) return;
  const BackendId backend = nodes_[sent.node][sent.frontend].backend;
  ends_.feed_frontend(sent.frontend,
                      serve::BackendMessageReceived{backend, std::move(sent.message)});
}

}  // namespace gpulet::simulate
