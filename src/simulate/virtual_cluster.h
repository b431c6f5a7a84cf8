// VirtualCluster: the cores of one or several frontends and any number of backends in virtual time,
// without sockets, processes or threads. The daemons run the same cores.
//
// Every node is connected to every frontend. Several frontends need somebody that tells them who
// leads (FrontendOptions::clustered, inject()); they are members f0, f1, ... of one cluster and
// connected to each other. Messages have a constant latency.
//
// Events are processed by time; ties in the order in which they were caused, and client requests
// last. So equal runs are identical. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/schedule/check.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/simulate/simulation.h"
#include "simulate/agenda.h"
#include "simulate/virtual_frontends.h"
#include "simulate/virtual_links.h"
#include "simulate/virtual_nodes.h"
#include "simulate/virtual_processes.h"

namespace gpulet::simulate {

class VirtualCluster : private VirtualEnds {
 public:
  // With one frontend. `clients`, `mishaps` and the objects of `knowledge` outlive the cluster.
  VirtualCluster(const VirtualTimings& timings, serve::FrontendOptions frontend, ServedLoad served,
                 Knowledge knowledge, VirtualClients& clients, Mishaps& mishaps);

  // Frontends are numbered from 0, which is that of the constructor. Call it before add_node().
  FrontendIndex add_frontend(serve::FrontendOptions options);
  // Adds a node and connects it at once. All of its devices are simulated, whatever their
  // partitioning. REQUIRES: the devices are numbered from 0; no running node has this name.
  void add_node(const std::string& name, const std::vector<schedule::Device>& devices);
  // The frontend that clients send to from now on.
  void set_entry(FrontendIndex frontend) {
    entry_ = frontend;
    all_entries_ = false;
  }
  // From now on, clients send to all frontends in turn.
  void use_all_entries() { all_entries_ = true; }

  // Passes an event to the frontend as if it came from outside the cluster, for instance from a
  // backend that violates the protocol. Messages to backends that are no nodes here are dropped.
  void inject(serve::FrontendEvent event, FrontendIndex frontend = 0) {
    frontends_.feed(frontend, std::move(event));
  }
  void observe(FrontendObserver observer) { frontends_.observe(std::move(observer)); }
  // Processes all events before `time`.
  void run_until(Time time);

  [[nodiscard]] Time now() const { return agenda_.now(); }
  // REQUIRES: it runs.
  [[nodiscard]] const serve::FrontendCore& frontend(FrontendIndex index = 0) const {
    return frontends_.core(index);
  }
  // REQUIRES: it runs.
  [[nodiscard]] const node::BackendCore& backend(const std::string& node) const {
    return nodes_.core(nodes_.index_of(node));
  }
  [[nodiscard]] const Told& told() const { return frontends_.told(); }
  // Requests, messages, batches and timers so far.
  [[nodiscard]] std::uint64_t events() const { return events_; }
  // The time of the completed batches on CPUs, times the cores of their gpulets.
  [[nodiscard]] double core_seconds_busy() const { return nodes_.processes().core_seconds_busy(); }

 protected:
  // For a cluster that has accidents.
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] VirtualLinks& links() { return links_; }
  [[nodiscard]] VirtualFrontends& frontends() { return frontends_; }
  [[nodiscard]] VirtualNodes& nodes() { return nodes_; }

 private:
  [[nodiscard]] bool node_runs(NodeIndex node) const override { return nodes_.runs(node); }
  [[nodiscard]] bool frontend_runs(FrontendIndex frontend) const override {
    return frontends_.runs(frontend);
  }
  void feed_node(NodeIndex node, node::BackendEvent event) override {
    nodes_.feed(node, std::move(event));
  }
  void feed_frontend(FrontendIndex frontend, serve::FrontendEvent event) override {
    frontends_.feed(frontend, std::move(event));
  }
  void command_node(NodeIndex node, FrontendId from, BackendCommand command) override {
    nodes_.command(node, from, std::move(command));
  }

  [[nodiscard]] Time next_event() const;
  // Handles the first due message or timer. Returns false if none is due.
  bool handle_next();
  void handle(const Timer& timer);
  // To the entry, or refused if that is gone.
  void send_request(InferRequest request, Duration age);
  void tell_of_plan();

  const VirtualTimings timings_;
  const Knowledge knowledge_;
  VirtualClients& clients_;
  Agenda agenda_;
  VirtualLinks links_;
  VirtualFrontends frontends_;
  VirtualNodes nodes_;
  FrontendIndex entry_ = 0;
  bool all_entries_ = false;
  std::uint64_t sent_ = 0;  // by clients
  std::uint64_t events_ = 0;
  Epoch epoch_seen_;
};

}  // namespace gpulet::simulate
