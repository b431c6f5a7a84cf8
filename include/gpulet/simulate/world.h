// World: the cores of one frontend and of any number of backends in virtual time, without sockets,
// processes or threads. The daemons run the same cores.
//
// Messages take a fixed time on the way. A gpulet's process takes its time to start and to load,
// then runs its batches one after another, each for the latency that BackendCore says (the
// profile's, slowed down by what runs beside it), and gives every request its own input back. Where
// its cores change under a batch, the rest of the batch takes as long as it does on the new ones.
// Things happen in the order of their time, ties in the order in which they were caused, requests
// last; so a run is the same every time. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/backend_core.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::simulate {

struct WorldOptions {
  Duration link = std::chrono::microseconds(100);  // between frontend and backend, each way
  Duration process_start = std::chrono::milliseconds(400);
  Duration model_load = std::chrono::milliseconds(300);  // each model of a gpulet after the other
  Duration planning = std::chrono::milliseconds(1);
};

// What the cores are told about the devices and how they plan. Whatever is pointed to outlives the
// world; it may be shared between worlds on several threads.
struct Knowledge {
  std::shared_ptr<const profile::ProfileSet> profiles;
  // What plans believe of neighbours; it refers to the profiles.
  std::shared_ptr<const profile::InterferenceSet> believed;
  // What neighbours do: the measured pairs, ready to be looked up; refers to the profiles.
  std::shared_ptr<const profile::InterferenceSet> measured;
  const schedule::Policy* policy = nullptr;
};

// The measured pairs of every profile that has some.
[[nodiscard]] std::shared_ptr<const profile::InterferenceSet> measured_pairs(
    const profile::ProfileSet& profiles);

// Those who use the world: they send requests and see what comes of them. They do not call the
// world while it calls them.
class Outside {
 public:
  virtual ~Outside() = default;
  // When the next request comes; kNever: none does.
  [[nodiscard]] virtual Time next_request() const = 0;
  // REQUIRES: next_request() is now or has passed. Its tag is unique among those in flight.
  virtual serve::InferRequest take_request() = 0;
  virtual void answered(serve::InferReply reply, Time now) = 0;
  virtual void plan_in_force(const schedule::Plan& plan, Time now) = 0;
};

// Sees every event that the frontend's core is given, and what it answered.
using FrontendObserver =
    std::function<void(const serve::FrontendEvent&, Time, const serve::FrontendEffects&)>;

class World {
 public:
  // `outside` outlives the world.
  World(const WorldOptions& options, serve::FrontendOptions frontend,
        std::vector<serve::ServedModel> models, Knowledge knowledge, Outside& outside);

  // A node with those devices, all of them simulated whatever their partitioning; it connects at
  // once. REQUIRES: devices are numbered from 0; no node of that name is there.
  void add_node(const std::string& name, const std::vector<schedule::Device>& devices);
  // Its process is killed: nothing more is heard from it or its gpulets.
  void kill_node(const std::string& name);
  // It is told to stop: what it serves may move first.
  void stop_node(const std::string& name);
  // The process of one gpulet that serves now dies. Returns false where none does.
  bool kill_a_proxy(const std::string& name);
  // A device of the node cannot be used any more, or (ok) can be again.
  void see_device(const std::string& name, std::uint32_t device, Status fault);

  void drain_at(Time time);
  void change_catalogue_at(Time time, serve::CatalogueChanged change);
  // From now on processes that load the model, on that node or, where it is empty, on any, fail
  // like this; ok: they load it again.
  void set_load_failure(const std::string& model, Status why,
                        FailureCause cause = FailureCause::unknown, const std::string& node = {});
  // Something that no node of this world said or did, for instance a backend that breaks the rules.
  // What the frontend tells backends that are no nodes here is dropped.
  void inject(serve::FrontendEvent event) { feed_frontend(std::move(event)); }
  // From now on processes end by that signal under a batch of the model that holds this byte, when
  // it would be done.
  void crash_on(const std::string& model, std::byte input, std::uint8_t signal);
  void observe(FrontendObserver observer) { observer_ = std::move(observer); }
  // Everything before `time`.
  void run_until(Time time);

  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] const serve::FrontendCore& frontend() const { return frontend_; }
  [[nodiscard]] bool drained() const { return drained_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // Numbers of the plans that were made, and what check() said against the last one.
  [[nodiscard]] const std::vector<std::uint64_t>& plans() const { return plans_; }
  [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }
  // Requests, messages, batches and timers so far.
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  struct Proxy {
    std::deque<serve::RunOnProxy> batches;  // the first one runs
    bool running = false;
    bool finishing = false;
    std::uint64_t life = 0;  // what was caused by an earlier process is void
    // The batch that runs. Only the timer of that order ends it: it may be put off.
    Time began{};
    Time ends{};
    std::uint64_t end_order = UINT64_MAX;
  };
  struct Node {
    std::string name;
    BackendId id;
    std::unique_ptr<serve::BackendCore> core;  // null: killed
    std::unordered_map<GpuletId, Proxy> proxies;
    Time wake = kNever;  // the earliest timer for it
  };
  using NodeIndex = std::size_t;

  template <typename Message>
  struct InTransit {
    Time time;
    std::uint64_t order = 0;
    NodeIndex node = 0;
    Message message;
  };
  struct Timer {
    enum class Kind : std::uint8_t { batch_done, node_wakes, call };
    Time time;
    std::uint64_t order = 0;  // for `call`: also its key in calls_
    Kind kind = Kind::call;
    NodeIndex node = 0;
    GpuletId gpulet;

    friend bool operator>(const Timer& a, const Timer& b) {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  [[nodiscard]] Time next_event() const;
  // The first thing caused by the cores that is due; false where none is.
  bool handle_caused();
  void handle(const Timer& timer);
  void call_at(Time time, std::function<void()> what);
  // The same, unless the process of that life is no more.
  void tell_node_at(Time time, NodeIndex node, GpuletId gpulet, std::uint64_t life,
                    serve::BackendEvent event);

  void feed_frontend(serve::FrontendEvent event);
  void carry_out(serve::FrontendEffect& effect);
  void plan(const serve::MakePlan& request);
  void arrive(NodeIndex index, serve::BackendCommand& command);
  void feed_node(NodeIndex index, serve::BackendEvent event);
  void carry_out(NodeIndex index, serve::BackendEffect& effect);
  void start_process(NodeIndex index, const serve::StartGpulet& start);
  void run_next(NodeIndex index, GpuletId gpulet, Proxy& proxy);
  void end_batch_at(Time time, NodeIndex index, GpuletId gpulet, Proxy& proxy);
  // Its cores change: what is left to do takes so much longer.
  void stretch(NodeIndex index, GpuletId gpulet, Proxy& proxy, double factor);
  void batch_done(const Timer& timer);
  // Whether the process crashes under the batch that is done.
  bool crash(const Timer& timer, const Proxy& proxy);
  [[nodiscard]] NodeIndex index_of(const std::string& name) const;

  const WorldOptions options_;
  const Knowledge knowledge_;
  Outside& outside_;
  Time now_{std::chrono::seconds(1)};
  serve::FrontendCore frontend_;
  std::deque<Node> nodes_;  // the id of nodes_[i] is i + 1

  // Messages take equally long, so they arrive in the order in which they were sent.
  std::deque<InTransit<serve::BackendCommand>> to_nodes_;
  std::deque<InTransit<serve::BackendMessage>> to_frontend_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::unordered_map<std::uint64_t, std::function<void()>> calls_;  // rare things; by order
  std::uint64_t next_order_ = 0;
  std::uint64_t next_life_ = 1;

  // Reused from event to event.
  serve::FrontendEffects frontend_effects_;
  serve::BackendEffects node_effects_;

  FrontendObserver observer_;  // may be empty
  struct LoadFailure {
    Status why;
    FailureCause cause = FailureCause::unknown;
  };
  std::map<std::pair<std::string, std::string>, LoadFailure> load_failures_;  // by model and node
  struct Crash {
    std::byte input{};
    std::uint8_t signal = 0;
  };
  std::map<std::string, Crash> crashes_;  // by model
  Epoch epoch_seen_;
  bool settle_due_ = false;
  bool drained_ = false;
  std::uint64_t events_ = 0;
  std::vector<std::string> notes_;
  std::vector<std::uint64_t> plans_;
  std::vector<std::string> faults_;
};

}  // namespace gpulet::simulate
