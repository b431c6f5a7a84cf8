// VirtualNodes: the cores of the backends, with what they tell the frontends and what their
// processes do. All devices are simulated, whatever their partitioning. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/simulate/simulation.h"
#include "simulate/agenda.h"
#include "simulate/virtual_links.h"
#include "simulate/virtual_processes.h"

namespace gpulet::simulate {

class VirtualNodes {
 public:
  // The arguments outlive the object. `ends` leads the events of processes back to feed().
  VirtualNodes(const VirtualTimings& timings, const Knowledge& knowledge, Agenda& agenda,
               VirtualLinks& links, VirtualEnds& ends, Mishaps& mishaps)
      : timings_(timings),
        knowledge_(knowledge),
        agenda_(agenda),
        links_(links),
        mishaps_(mishaps),
        processes_(timings, agenda, ends, mishaps) {}

  // Without connections. REQUIRES: the devices are numbered from 0; no running node has this name.
  NodeIndex add(const std::string& name, const std::vector<schedule::Device>& devices);
  // Kills the backend process and with it its gpulets.
  void kill(NodeIndex node);

  // Of the running node with that name.
  [[nodiscard]] NodeIndex index_of(const std::string& name) const;
  [[nodiscard]] bool runs(NodeIndex node) const { return nodes_[node].core != nullptr; }
  // REQUIRES: it runs.
  [[nodiscard]] const node::BackendCore& core(NodeIndex node) const { return *nodes_[node].core; }
  [[nodiscard]] VirtualProcesses& processes() { return processes_; }
  [[nodiscard]] const VirtualProcesses& processes() const { return processes_; }

  // REQUIRES: the node runs.
  void feed(NodeIndex node, node::BackendEvent event);
  // A command from the frontend at the other end of that connection. REQUIRES: the node runs.
  void command(NodeIndex node, FrontendId from, BackendCommand command);
  void wake(const Timer& timer);

 private:
  struct Node {
    std::string name;
    std::unique_ptr<node::BackendCore> core;  // null: killed
    Time wake = kNever;                       // the earliest timer of the node
  };

  // One overload of receive() for each command, and of carry_out() for each effect.
  void pass_on(NodeIndex node, node::FrontendCommand command) {
    feed(node, node::CommandReceived{receiving_from_, std::move(command)});
  }
  void receive(NodeIndex node, Batch& command);
  void receive(NodeIndex node, Rows& command);
  void receive(NodeIndex node, CreateGpulet& command) {
    pass_on(node, node::GpuletRequested{std::move(command), {}});
  }
  void receive(NodeIndex node, AssignGpulet& command) { pass_on(node, std::move(command)); }
  void receive(NodeIndex node, const SetCores& command) { pass_on(node, command); }
  void receive(NodeIndex node, SetOwner& command) { pass_on(node, std::move(command)); }
  void receive(NodeIndex node, const RetireGpulet& command) { pass_on(node, command); }
  void receive(NodeIndex node, const Welcome& command) { pass_on(node, command); }
  void receive(NodeIndex node, const TakeLeadership& command) { pass_on(node, command); }
  void receive(NodeIndex node, Heartbeat& command) { pass_on(node, std::move(command)); }
  // Files arrive whole (VirtualLinks::send_file).
  void receive(NodeIndex /*node*/, const ModelPiece& /*command*/) {}
  // Explains the DisconnectBackend that follows it.
  void receive(NodeIndex /*node*/, const Refused& /*command*/) {}
  void carry_out(NodeIndex node, node::SendToFrontend& effect);
  void carry_out(NodeIndex node, const node::DisconnectFrontend& effect) {
    links_.close(node, effect.frontend, effect.reason);
  }
  void carry_out(NodeIndex /*node*/, const node::DropUnfinishedFiles& /*effect*/) {}
  void carry_out(NodeIndex node, node::RunOnProxy& effect);
  template <typename Effect>
  requires requires(VirtualProcesses& of, Effect& effect) { of.carry_out(NodeIndex{}, effect); }
  void carry_out(NodeIndex node, Effect& effect) { processes_.carry_out(node, effect); }

  const VirtualTimings& timings_;
  const Knowledge& knowledge_;
  Agenda& agenda_;
  VirtualLinks& links_;
  Mishaps& mishaps_;
  VirtualProcesses processes_;
  std::deque<Node> nodes_;
  FrontendId receiving_from_;          // the sender of the command that a node receives
  node::BackendEffects node_effects_;  // kept to reuse its memory
};

}  // namespace gpulet::simulate
