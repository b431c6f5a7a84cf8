// VirtualProcesses: the processes of the gpulets of all nodes. A process takes time to start and to
// load, then executes its batches one after another, each for the duration that BackendCore
// computes, and returns the input of each request as its output. If the cores of a gpulet change
// during a batch, the rest of the batch takes as long as it does on the new cores. On a device with
// a simulator, the batches of a gpulet with controlled cores run together (SharedProcessor). Pure;
// one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/profile/latency_simulator.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"
#include "gpulet/simulate/simulation.h"
#include "simulate/agenda.h"
#include "simulate/shared_processor.h"
#include "simulate/virtual_links.h"

namespace gpulet::simulate {

struct LoadFailure {
  Status why;
  FailureCause cause = FailureCause::unknown;
};

// Faults of nodes and their processes. This class injects none; tests of failures override it.
// Nodes are named.
class Mishaps {
 public:
  virtual ~Mishaps() = default;
  // How long a process takes to load the model, in place of `usual`.
  [[nodiscard]] virtual Duration load_time(const std::string& /*model*/, Duration usual) const {
    return usual;
  }
  [[nodiscard]] virtual std::optional<LoadFailure> load_failure(
      const std::string& /*node*/, const std::string& /*model*/) const {
    return std::nullopt;
  }
  // The first run of the model never ends.
  [[nodiscard]] virtual bool hangs_while_loading(const std::string& /*node*/,
                                                 const std::string& /*model*/) const {
    return false;
  }
  // How long the batch takes, in place of `usual`.
  [[nodiscard]] virtual Duration duration(const std::string& /*node*/,
                                          const node::RunOnProxy& /*batch*/, Duration usual) const {
    return usual;
  }
  // The signal that ends the process in place of the batch. 0: the batch completes.
  [[nodiscard]] virtual std::uint8_t signal(const std::string& /*node*/,
                                            const node::RunOnProxy& /*batch*/) const {
    return 0;
  }
  // Sees every message of a node before it is sent, and may change it. False: it gets lost.
  virtual bool passes(const std::string& /*node*/, BackendMessage& /*message*/) { return true; }
};

struct VirtualDevice {
  double cores = 0;  // 0: no CPU
  // How long batches take on parts of the cores. Empty: they do not share them.
  std::optional<profile::LatencySimulator> simulator;
};

class VirtualProcesses {
 public:
  // The arguments outlive the object.
  VirtualProcesses(const VirtualTimings& timings, Agenda& agenda, VirtualEnds& ends,
                   const Mishaps& mishaps)
      : timings_(timings), agenda_(agenda), ends_(ends), mishaps_(mishaps) {}

  // The next node.
  void add_node(std::string name, std::vector<VirtualDevice> devices) {
    nodes_.push_back({std::move(name), std::move(devices), {}});
  }
  // Ends all processes of the node without an event.
  void clear(NodeIndex node) { nodes_[node].processes.clear(); }
  // Ends one process without an event. Returns whether there was one.
  bool remove(NodeIndex node, GpuletId gpulet) { return nodes_[node].processes.erase(gpulet) > 0; }
  // In no particular order.
  [[nodiscard]] std::vector<GpuletId> gpulets(NodeIndex node) const;

  // What the node's core wants of its processes.
  void carry_out(NodeIndex node, const node::StartGpulet& effect);
  void carry_out(NodeIndex node, const node::ActivateShare& effect);
  void carry_out(NodeIndex node, const node::AdjustCores& effect);
  void carry_out(NodeIndex node, node::RunOnProxy& effect);
  void carry_out(NodeIndex node, const node::FinishProxy& effect);
  void carry_out(NodeIndex node, const node::KillProxy& effect) {
    end(node, effect.gpulet, effect.reason);
  }

  void batch_done(const Timer& timer);

  // The time of the completed batches on CPUs, times the cores of their gpulets.
  [[nodiscard]] double core_seconds_busy() const { return core_seconds_busy_; }

 private:
  struct Process {
    // The front one is executing if `running`, or all of them if they share the cores.
    std::deque<node::RunOnProxy> batches;
    bool running = false;
    bool finishing = false;
    std::uint64_t life = 0;  // events of an earlier process of the gpulet are ignored
    // The executing batch. Its end may move: only the timer of this order completes it.
    Time began{};
    Time ends{};
    std::uint64_t end_order = UINT64_MAX;
    double cores = 0;      // of a CPU
    Time counted_until{};  // until then, the executing batch is part of core_seconds_busy_
    std::uint32_t device = 0;
    std::optional<SharedProcessor> shared;
  };
  struct Node {
    std::string name;
    std::vector<VirtualDevice> devices;
    std::unordered_map<GpuletId, Process> processes;
  };

  // Passes the event to the node at that time if the process of that life still exists.
  void feed_at(Time time, NodeIndex node, GpuletId gpulet, std::uint64_t life,
               node::BackendEvent event);
  // How the load of these models ends.
  [[nodiscard]] node::ProxyLoaded loaded(const Node& node, GpuletId gpulet,
                                         const LoadModels& models) const;
  void end(NodeIndex node, GpuletId gpulet, const Status& reason);
  void run_next(NodeIndex node, GpuletId gpulet, Process& process);
  // The newest batch of the process begins beside the others.
  void run_beside(NodeIndex node, GpuletId gpulet, Process& process);
  // Removes the batch that has ended; the next one begins.
  node::RunOnProxy take_done(NodeIndex node, GpuletId gpulet, Process& process);
  void end_batch_at(Time time, NodeIndex node, GpuletId gpulet, Process& process);
  // Multiplies the rest of the executing batch, and all later ones, by `factor`.
  void stretch(NodeIndex node, GpuletId gpulet, Process& process, double factor);
  void count_busy(Process& process);
  [[nodiscard]] Duration duration_of(NodeIndex node, const node::RunOnProxy& batch) const;
  // Returns whether the process crashed instead of completing its batch.
  bool crash(const Timer& timer, const Process& process);

  const VirtualTimings& timings_;
  Agenda& agenda_;
  VirtualEnds& ends_;
  const Mishaps& mishaps_;
  std::deque<Node> nodes_;
  std::uint64_t next_life_ = 1;
  double core_seconds_busy_ = 0;
};

}  // namespace gpulet::simulate
