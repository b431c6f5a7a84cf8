// VirtualCluster: the cores of one or several frontends and any number of backends in virtual time,
// without sockets, processes or threads. The daemons run the same cores.
//
// Every node is connected to every frontend. Several frontends need somebody that tells them who
// leads (FrontendOptions::clustered, inject()); they are members f0, f1, ... of one cluster and
// connected to each other.
//
// Messages have a constant latency. The process of a gpulet takes time to start and to load, then
// executes its batches one after another, each for the duration that BackendCore computes from the
// profile and the interference at that moment, and returns the input of each request as its output.
// If the cores of a gpulet change during a batch, the rest of the batch takes as long as it does on
// the new cores. Events are processed by time; ties in the order in which they were caused, and
// client requests last. So equal runs are identical. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {

// The clients of a VirtualCluster. They must not call the cluster from these functions.
class VirtualClients {
 public:
  virtual ~VirtualClients() = default;
  // The time of the next request, or kNever.
  [[nodiscard]] virtual Time next_request() const = 0;
  // REQUIRES: next_request() has come. The tag is unique among the requests in flight.
  virtual InferRequest take_request() = 0;
  // How long the request of the last take_request() has waited elsewhere before.
  [[nodiscard]] virtual Duration age_of_taken() const { return {}; }
  virtual void answered(InferReply reply, Time now) = 0;
  virtual void plan_in_force(const schedule::Plan& plan, Time now) = 0;
};

// Sees every event of the frontend's core and the effects that it returned.
using FrontendObserver =
    std::function<void(const serve::FrontendEvent&, Time, const serve::FrontendEffects&)>;

class VirtualCluster {
 public:
  // `clients` and the objects of `knowledge` outlive the cluster.
  VirtualCluster(const VirtualTimings& timings, serve::FrontendOptions frontend,
                 std::vector<serve::ServedModel> models, Knowledge knowledge,
                 VirtualClients& clients, serve::ApplicationList applications = {});

  // Frontends are numbered from 0, which is that of the constructor. Call it before add_node().
  std::size_t add_frontend(serve::FrontendOptions options);
  // Kills the frontend's process: its connections end.
  void kill_frontend(std::size_t frontend);
  // Between these two, the frontend takes no event, as after SIGSTOP. The others give up their
  // connections to it after kPeerSilence.
  void pause_frontend(std::size_t frontend);
  void resume_frontend(std::size_t frontend);
  // From now on, messages between the two are lost. The peers find out by their heartbeats.
  void cut(const std::string& node, std::size_t frontend);
  // The node connects to the frontend anew.
  void heal(const std::string& node, std::size_t frontend);
  // The frontend that clients send to from now on.
  void set_entry(std::size_t frontend) {
    entry_ = frontend;
    all_entries_ = false;
  }
  // From now on, clients send to all frontends in turn.
  void use_all_entries() { all_entries_ = true; }

  // Adds a node and connects it at once. All of its devices are simulated, whatever their
  // partitioning. REQUIRES: the devices are numbered from 0; no live node has this name.
  void add_node(const std::string& name, const std::vector<schedule::Device>& devices);
  // Kills the backend process and with it its gpulets.
  void kill_node(const std::string& name);
  // Stops the backend as SIGTERM does: its models may move first.
  void stop_node(const std::string& name) { feed_node(index_of(name), node::ShutDown{}); }
  // Kills the process of the ready gpulet with the lowest id. Returns false if there is none.
  bool kill_proxy(const std::string& node);
  // Reports a device as failed, or as usable again (ok).
  void report_device_health(const std::string& node, std::uint32_t device, Status fault);

  void drain_at(Time time) {
    call_at(time, [this] { feed_frontend(0, serve::Drain{}); });
  }
  void change_catalogue_at(Time time, serve::CatalogueChanged change);
  // From now on, processes that load the model fail with `why` on that node, or on every node if
  // `node` is empty. ok: they load it again.
  void set_load_failure(const std::string& model, Status why,
                        FailureCause cause = FailureCause::unknown, const std::string& node = {});
  // From now on, processes take that long to load the model.
  void set_load_time(const std::string& model, Duration time) { load_times_[model] = time; }
  // From now on, processes that load the model on that node, or on every node if `node` is empty,
  // never end its first run.
  void hang_while_loading(const std::string& model, const std::string& node = {}) {
    load_hangs_.emplace(model, node);
  }
  // From now on, every batch ends its process by signal 11 on that node.
  void crash_every_batch_on(const std::string& node) { crashing_nodes_.insert(node); }
  // Sees every message of a node before it is sent, and may change it. False: it gets lost.
  using MessageFilter = std::function<bool(const std::string& node, BackendMessage& message)>;
  void filter_messages(MessageFilter filter) { filter_ = std::move(filter); }
  // Passes an event to the frontend as if it came from outside the cluster, for instance from a
  // backend that violates the protocol. Messages to backends that are no nodes here are dropped.
  void inject(serve::FrontendEvent event, std::size_t frontend = 0) {
    feed_frontend(frontend, std::move(event));
  }
  // From now on, processes that complete a batch of the model with this byte in its input end by
  // the signal instead.
  void crash_on(const std::string& model, std::byte input, std::uint8_t signal);
  // From now on, batches on that node take this multiple of their profile's time.
  void set_pace(const std::string& node, double factor) { nodes_[index_of(node)].pace = factor; }
  // From now on, batches of the model with this byte in their input take that long at least.
  void slow_on(const std::string& model, std::byte input, Duration latency);
  void observe(FrontendObserver observer) { observer_ = std::move(observer); }
  // Processes all events before `time`.
  void run_until(Time time);

  static constexpr Duration kPeerSilence = std::chrono::seconds(2);

  [[nodiscard]] Time now() const { return now_; }
  // REQUIRES: it was not killed.
  [[nodiscard]] const serve::FrontendCore& frontend(std::size_t index = 0) const {
    return *frontends_[index].core;
  }
  // REQUIRES: it was not killed.
  [[nodiscard]] const node::BackendCore& backend(const std::string& node) const {
    return *nodes_[index_of(node)].core;
  }
  [[nodiscard]] bool drained() const { return drained_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // The terms of all SupersededBy.
  [[nodiscard]] const std::vector<Term>& superseded() const { return superseded_; }
  // The numbers of all plans, and the findings of check() about the last one.
  [[nodiscard]] const std::vector<std::uint64_t>& plans() const { return plans_; }
  [[nodiscard]] const std::vector<schedule::Violation>& faults() const { return faults_; }
  // Requests, messages, batches and timers so far.
  [[nodiscard]] std::uint64_t events() const { return events_; }
  // The time of the completed batches on CPUs, times the cores of their gpulets.
  [[nodiscard]] double core_seconds_busy() const { return core_seconds_busy_; }

 private:
  using NodeIndex = std::size_t;
  using FrontendIndex = std::size_t;

  struct Frontend {
    std::unique_ptr<serve::FrontendCore> core;  // null: killed
    bool settle_due = false;
    bool paused = false;
    std::uint64_t pauses = 0;
    std::deque<serve::FrontendEvent> held{};  // while it is paused
    ServedModels told{};                      // in its last TellPeers
  };
  // Ids below are of the cluster's clients.
  static constexpr std::uint64_t kFirstPeerClient = std::uint64_t{1} << 32U;
  // The connection of one frontend to another, over which it forwards.
  struct PeerLink {
    FrontendIndex from = 0;
    FrontendIndex to = 0;
    ClientId client;  // of `from` at `to`
  };
  // The connection between a node and a frontend, as both know it.
  struct Link {
    FrontendId frontend;  // 0: not connected
    BackendId backend;
    bool cut = false;
  };

  struct Proxy {
    std::deque<node::RunOnProxy> batches;  // the front one is executing if `running`
    bool running = false;
    bool finishing = false;
    std::uint64_t life = 0;  // events of an earlier process of the gpulet are ignored
    // The executing batch. Its end may move: only the timer of this order completes it.
    Time began{};
    Time ends{};
    std::uint64_t end_order = UINT64_MAX;
    double cores = 0;      // of a CPU
    Time counted_until{};  // until then, the executing batch is part of core_seconds_busy_
  };
  struct Node {
    std::string name;
    std::vector<Link> links;                  // by frontend
    std::unique_ptr<node::BackendCore> core;  // null: killed
    std::vector<double> device_cores;         // by device; 0: no CPU
    std::unordered_map<GpuletId, Proxy> proxies;
    Time wake = kNever;  // the earliest timer of the node
    double pace = 1;
  };
  template <typename Message>
  struct InTransit {
    Time time;
    std::uint64_t order = 0;
    NodeIndex node = 0;
    FrontendIndex frontend = 0;
    FrontendId connection;  // a message of an earlier one is lost
    Message message;
  };
  struct Timer {
    enum class Kind : std::uint8_t { batch_done, node_wakes, call };
    Time time;
    std::uint64_t order = 0;  // for `call` also the key in calls_
    Kind kind = Kind::call;
    NodeIndex node = 0;
    GpuletId gpulet;

    friend bool operator>(const Timer& a, const Timer& b) {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  struct LoadFailure {
    Status why;
    FailureCause cause = FailureCause::unknown;
  };
  struct Crash {
    std::byte input{};
    std::uint8_t signal = 0;
  };
  struct SlowInput {
    std::byte input{};
    Duration latency{};
  };

  // Time.
  [[nodiscard]] Time next_event() const;
  // To the entry, or refused if that is gone.
  void send_request(InferRequest request, Duration age);
  // Handles the first due message or timer. Returns false if none is due.
  bool handle_next();
  void handle(const Timer& timer);
  std::uint64_t add_timer(Time time, Timer::Kind kind, NodeIndex node, GpuletId gpulet);
  void call_at(Time time, std::function<void()> call);
  // Passes the event to the node at that time if the process of that life still exists.
  void feed_node_at(Time time, NodeIndex node, GpuletId gpulet, std::uint64_t life,
                    node::BackendEvent event);

  // Connections.
  void connect(NodeIndex node, FrontendIndex frontend);
  // Ends the connection; each side that still lives finds out after the latency of a message.
  void disconnect(NodeIndex node, FrontendIndex frontend, const Status& why);
  // The node with that id at the frontend. Empty: injected, no node of this cluster.
  [[nodiscard]] std::optional<NodeIndex> node_of(FrontendIndex frontend, BackendId id) const;
  [[nodiscard]] FrontendIndex frontend_of(NodeIndex node, FrontendId connection) const;

  // Connections between frontends.
  void connect_peers(FrontendIndex one, FrontendIndex other);
  void connect_peer(FrontendIndex from, FrontendIndex to);
  // Ends all connections from and to the frontend.
  void disconnect_peers(FrontendIndex frontend);
  [[nodiscard]] static std::string member_of(FrontendIndex frontend) {
    return "f" + std::to_string(frontend);
  }
  // Null: not connected (any more).
  [[nodiscard]] const PeerLink* peer_link(ClientId client) const;
  void reply_to_peer(ClientId client, ForwardReply reply);
  void deliver(const PeerLink& link, const PeerRequest& message);

  // The frontends: one overload of carry_out() for each effect of frontends_[acting_].
  void feed_frontend(FrontendIndex frontend, serve::FrontendEvent event);
  void carry_out(serve::ReplyToClient& effect);
  void carry_out(const serve::ReplyElsewhere& effect);
  void carry_out(serve::SendToPeer& effect);
  void carry_out(serve::TellPeers& effect);
  void carry_out(serve::SendToBackend& effect);
  void carry_out(const serve::SendModelFile& effect);
  void carry_out(const serve::DisconnectBackend& effect);
  void carry_out(const serve::MakePlan& effect);
  void carry_out(const serve::StepToRun& effect);
  void carry_out(serve::EventNote& effect) { notes_.push_back(std::move(effect.text)); }
  void carry_out(const serve::RequestTraced& /*effect*/) {}
  void carry_out(const serve::SupersededBy& effect) { superseded_.push_back(effect.term); }
  void carry_out(const serve::Drained& /*effect*/) { drained_ = true; }

  // The nodes: one overload of receive() for each command, and of carry_out() for each effect.
  void feed_node(NodeIndex node, node::BackendEvent event);
  void command_node(NodeIndex node, node::FrontendCommand command) {
    feed_node(node, node::CommandReceived{receiving_from_, std::move(command)});
  }
  void receive(NodeIndex node, Batch& command);
  void receive(NodeIndex node, CreateGpulet& command) {
    command_node(node, node::GpuletRequested{std::move(command), {}});
  }
  void receive(NodeIndex node, AssignGpulet& command) { command_node(node, std::move(command)); }
  void receive(NodeIndex node, const SetCores& command) { command_node(node, command); }
  void receive(NodeIndex node, SetOwner& command) { command_node(node, std::move(command)); }
  void receive(NodeIndex node, const RetireGpulet& command) { command_node(node, command); }
  void receive(NodeIndex node, const Welcome& command) { command_node(node, command); }
  void receive(NodeIndex node, const TakeLeadership& command) { command_node(node, command); }
  void receive(NodeIndex node, Heartbeat& command) { command_node(node, std::move(command)); }
  // SendModelFile delivers whole files instead of pieces.
  void receive(NodeIndex /*node*/, const ModelPiece& /*command*/) {}
  // Explains the DisconnectBackend that follows it.
  void receive(NodeIndex /*node*/, const Refused& /*command*/) {}
  void carry_out(NodeIndex node, node::SendToFrontend& effect);
  void carry_out(NodeIndex node, const node::DisconnectFrontend& effect);
  // Files arrive whole.
  void carry_out(NodeIndex /*node*/, const node::DropUnfinishedFiles& /*effect*/) {}
  void carry_out(NodeIndex node, const node::StartGpulet& effect);
  void carry_out(NodeIndex node, const node::ActivateShare& effect);
  void carry_out(NodeIndex node, const node::AdjustCores& effect);
  void carry_out(NodeIndex node, node::RunOnProxy& effect);
  void carry_out(NodeIndex node, const node::FinishProxy& effect);
  void carry_out(NodeIndex node, const node::KillProxy& effect) {
    end_process(node, effect.gpulet, effect.reason);
  }

  // Processes of gpulets.
  void end_process(NodeIndex node, GpuletId gpulet, const Status& reason);
  void run_next(NodeIndex node, GpuletId gpulet, Proxy& proxy);
  void end_batch_at(Time time, NodeIndex node, GpuletId gpulet, Proxy& proxy);
  // Multiplies the rest of the executing batch, and all later ones, by `factor`.
  void stretch(NodeIndex node, GpuletId gpulet, Proxy& proxy, double factor);
  void count_busy(Proxy& proxy);
  void batch_done(const Timer& timer);
  // How long the batch takes, after set_pace() and slow_on().
  [[nodiscard]] Duration latency_of(NodeIndex node, const node::RunOnProxy& batch) const;
  // Returns whether the process crashed, by crash_on(), instead of completing its batch.
  bool crash(const Timer& timer, const Proxy& proxy);
  [[nodiscard]] NodeIndex index_of(const std::string& name) const;

  const VirtualTimings timings_;
  const Knowledge knowledge_;
  VirtualClients& clients_;
  const std::vector<serve::ServedModel> models_;  // of a frontend at its start
  const serve::ApplicationList applications_;     // the same
  Time now_{std::chrono::seconds(1)};
  std::deque<Frontend> frontends_;
  FrontendIndex entry_ = 0;
  bool all_entries_ = false;
  std::uint64_t sent_ = 0;     // by clients
  FrontendIndex acting_ = 0;   // the frontend whose effects are being carried out
  FrontendId receiving_from_;  // the sender of the command that a node receives
  std::deque<Node> nodes_;
  std::vector<PeerLink> peer_links_;
  std::uint64_t next_peer_client_ = kFirstPeerClient;
  std::uint64_t next_connection_ = 1;
  std::unordered_map<BackendId, NodeIndex> node_of_connection_;  // of earlier connections, too

  // Every message has the same latency, so messages arrive in the order in which they were sent.
  std::deque<InTransit<BackendCommand>> to_nodes_;
  std::deque<InTransit<BackendMessage>> to_frontend_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::unordered_map<std::uint64_t, std::function<void()>> calls_;  // by order
  std::uint64_t next_order_ = 0;
  std::uint64_t next_life_ = 1;

  // Kept to reuse their memory.
  serve::FrontendEffects frontend_effects_;
  node::BackendEffects node_effects_;

  FrontendObserver observer_;                                                 // may be empty
  std::map<std::pair<std::string, std::string>, LoadFailure> load_failures_;  // by model and node
  std::map<std::string, Duration> load_times_;  // of models; others take VirtualTimings::model_load
  std::set<std::pair<std::string, std::string>> load_hangs_;  // model and node
  std::set<std::string> crashing_nodes_;
  MessageFilter filter_;                                       // may be empty
  std::map<std::string, std::vector<SlowInput>> slow_inputs_;  // by model
  std::map<std::string, Crash> crashes_;                       // by model
  Epoch epoch_seen_;
  bool drained_ = false;
  std::uint64_t events_ = 0;
  double core_seconds_busy_ = 0;
  std::vector<std::string> notes_;
  std::vector<Term> superseded_;
  std::vector<std::uint64_t> plans_;
  std::vector<schedule::Violation> faults_;
};

}  // namespace gpulet::simulate
