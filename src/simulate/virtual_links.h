// VirtualLinks: the connections between nodes and frontends, and the messages on them. Every
// message has the same latency, so messages arrive in the order in which they were sent. A
// connection that ends takes its messages with it. Pure; one thread at a time.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"
#include "simulate/agenda.h"

namespace gpulet::simulate {

// The cores at the ends of connections. An end that does not run takes no event.
class VirtualEnds {
 public:
  virtual ~VirtualEnds() = default;
  [[nodiscard]] virtual bool node_runs(NodeIndex node) const = 0;
  [[nodiscard]] virtual bool frontend_runs(FrontendIndex frontend) const = 0;
  // REQUIRES: the node runs.
  virtual void feed_node(NodeIndex node, node::BackendEvent event) = 0;
  virtual void feed_frontend(FrontendIndex frontend, serve::FrontendEvent event) = 0;
  // The command came over that connection of the node, which runs.
  virtual void command_node(NodeIndex node, FrontendId from, BackendCommand command) = 0;
};

class VirtualLinks {
 public:
  // `latency`: of a message, one way. The agenda and the ends outlive the object.
  VirtualLinks(Duration latency, Agenda& agenda, VirtualEnds& ends)
      : latency_(latency), agenda_(agenda), ends_(ends) {}

  // The next node, connected to none of so many frontends.
  void add_node(std::size_t frontends) { nodes_.emplace_back(frontends); }

  // Does nothing where the frontend does not run.
  void connect(NodeIndex node, FrontendIndex frontend);
  // The node connects anew when both ends have seen that a connection ended.
  void connect_later(NodeIndex node, FrontendIndex frontend);
  // Ends the connection; each end that still runs finds out after the latency of a message.
  void disconnect(NodeIndex node, FrontendIndex frontend, const Status& why);
  void disconnect_node(NodeIndex node, const Status& why);
  void disconnect_frontend(FrontendIndex frontend, const Status& why);
  // From now on, messages on the present connection are lost.
  void cut(NodeIndex node, FrontendIndex frontend) { nodes_[node][frontend].cut = true; }

  // What a frontend does to the node that it knows by that id. Does nothing for an id that has no
  // connection, such as that of an injected event.
  void send(FrontendIndex from, BackendId to, BackendCommand command);
  // The file arrives whole.
  void send_file(FrontendIndex from, BackendId to, const std::string& sha256);
  // The node connects again, unless the two cannot reach each other. The frontend needs no event.
  void close(FrontendIndex frontend, BackendId node);

  // What a node does to the frontend at the other end of a connection.
  [[nodiscard]] bool connects(NodeIndex node, FrontendId connection) const;
  void send(NodeIndex from, FrontendId to, BackendMessage message);
  void close(NodeIndex node, FrontendId frontend, const Status& why);

  // The first command to a node, and the first message to a frontend, that is under way.
  [[nodiscard]] std::optional<Due> next_command() const;
  [[nodiscard]] std::optional<Due> next_message() const;
  // REQUIRES: there is one.
  void deliver_command();
  void deliver_message();

 private:
  // As both ends know it.
  struct Link {
    FrontendId frontend;  // 0: not connected
    BackendId backend;
    bool cut = false;
  };
  template <typename Message>
  struct InTransit {
    Due due;
    NodeIndex node = 0;
    FrontendIndex frontend = 0;
    FrontendId connection;  // a message of an earlier one is lost
    Message message;
  };

  [[nodiscard]] Time arrival() const { return agenda_.now() + latency_; }
  [[nodiscard]] std::optional<NodeIndex> node_of(FrontendIndex frontend, BackendId id) const;
  // Behind the last one: the connection has ended.
  [[nodiscard]] FrontendIndex frontend_of(NodeIndex node, FrontendId connection) const;
  template <typename Message>
  [[nodiscard]] bool arrives(const InTransit<Message>& sent) const;

  const Duration latency_;
  Agenda& agenda_;
  VirtualEnds& ends_;
  std::deque<std::vector<Link>> nodes_;  // by node and frontend
  std::uint64_t next_connection_ = 1;
  std::unordered_map<BackendId, NodeIndex> node_of_connection_;  // of earlier connections, too
  std::deque<InTransit<BackendCommand>> to_nodes_;
  std::deque<InTransit<BackendMessage>> to_frontends_;
};

}  // namespace gpulet::simulate
