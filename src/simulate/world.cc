#include "gpulet/simulate/world.h"

#include <algorithm>
#include <utility>

#include "gpulet/serve/planning.h"

namespace gpulet::simulate {

using namespace serve;  // NOLINT(google-build-using-namespace): its vocabulary throughout

std::shared_ptr<const profile::InterferenceSet> measured_pairs(
    const profile::ProfileSet& profiles) {
  profile::InterferenceSet pairs;
  for (const auto& [name, profile] : profiles) {
    Result<profile::InterferenceModel> model =
        profile::InterferenceModel::create(profile, profile::InterferenceKind::measured);
    if (model.ok()) pairs.emplace(name, std::move(model).value());
  }
  return std::make_shared<const profile::InterferenceSet>(std::move(pairs));
}

World::World(const WorldOptions& options, FrontendOptions frontend, std::vector<ServedModel> models,
             Knowledge knowledge, Outside& outside)
    : options_(options),
      knowledge_(std::move(knowledge)),
      outside_(outside),
      frontend_(std::move(frontend),
                {std::move(models), knowledge_.profiles, knowledge_.believed, {}}, now_) {}

// ---- time

Time World::next_event() const {
  Time next = std::min(frontend_.next_wake(), outside_.next_request());
  if (!to_nodes_.empty()) next = std::min(next, to_nodes_.front().time);
  if (!to_frontend_.empty()) next = std::min(next, to_frontend_.front().time);
  if (!timers_.empty()) next = std::min(next, timers_.top().time);
  return next;
}

void World::run_until(Time time) {
  while (true) {
    const Time next = next_event();
    if (next >= time) break;
    now_ = std::max(now_, next);
    while (handle_caused()) ++events_;
    while (outside_.next_request() <= now_) {
      feed_frontend(ClientSaid{ClientId{1}, outside_.take_request()});
      ++events_;
    }
    if (settle_due_ || frontend_.next_wake() <= now_) {
      feed_frontend(Settle{});
      settle_due_ = false;
    }
    if (frontend_.epoch() != epoch_seen_) {
      epoch_seen_ = frontend_.epoch();
      outside_.plan_in_force(frontend_.plan(), now_);
    }
  }
  now_ = std::max(now_, time);
}

bool World::handle_caused() {
  enum class Source : std::uint8_t { none, node, frontend, timer };
  Source source = Source::none;
  std::uint64_t first = UINT64_MAX;
  Time time = now_;  // what is due already, whatever its order, comes by time first
  const auto consider = [&](Source candidate, Time at, std::uint64_t order) {
    if (at > now_) return;
    if (source != Source::none && (at > time || (at == time && order > first))) return;
    source = candidate;
    time = at;
    first = order;
  };
  if (!to_nodes_.empty()) consider(Source::node, to_nodes_.front().time, to_nodes_.front().order);
  if (!to_frontend_.empty()) {
    consider(Source::frontend, to_frontend_.front().time, to_frontend_.front().order);
  }
  if (!timers_.empty()) consider(Source::timer, timers_.top().time, timers_.top().order);

  switch (source) {
    case Source::none:
      return false;
    case Source::node: {
      auto sent = std::move(to_nodes_.front());
      to_nodes_.pop_front();
      if (nodes_[sent.node].core != nullptr) arrive(sent.node, sent.message);
      break;
    }
    case Source::frontend: {
      auto sent = std::move(to_frontend_.front());
      to_frontend_.pop_front();
      const Node& node = nodes_[sent.node];
      if (node.core != nullptr) feed_frontend(BackendSaid{node.id, std::move(sent.message)});
      break;
    }
    case Source::timer: {
      const Timer timer = timers_.top();
      timers_.pop();
      handle(timer);
      break;
    }
  }
  return true;
}

void World::handle(const Timer& timer) {
  switch (timer.kind) {
    case Timer::Kind::batch_done:
      batch_done(timer);
      break;
    case Timer::Kind::node_wakes: {
      Node& node = nodes_[timer.node];
      if (node.core == nullptr || timer.time != node.wake) break;
      node.wake = kNever;
      feed_node(timer.node, TimePassed{});
      break;
    }
    case Timer::Kind::call: {
      const auto found = calls_.find(timer.order);
      const std::function<void()> what = std::move(found->second);
      calls_.erase(found);
      what();
      break;
    }
  }
}

void World::call_at(Time time, std::function<void()> what) {
  Timer timer;
  timer.time = std::max(time, now_);
  timer.order = next_order_++;
  calls_.emplace(timer.order, std::move(what));
  timers_.push(timer);
}

void World::drain_at(Time time) {
  call_at(time, [this] { feed_frontend(Drain{}); });
}

void World::change_catalogue_at(Time time, CatalogueChanged change) {
  call_at(time, [this, change = std::move(change)] { feed_frontend(change); });
}

void World::set_load_failure(const std::string& model, Status why, FailureCause cause,
                             const std::string& node) {
  if (why.ok()) {
    load_failures_.erase({model, node});
  } else {
    load_failures_.insert_or_assign({model, node}, LoadFailure{std::move(why), cause});
  }
}

void World::crash_on(const std::string& model, std::byte input, std::uint8_t signal) {
  crashes_.insert_or_assign(model, Crash{input, signal});
}

// ---- the frontend

void World::feed_frontend(FrontendEvent event) {
  settle_due_ = true;
  frontend_effects_.clear();
  if (observer_) {
    const FrontendEvent seen = event;
    frontend_.on(std::move(event), now_, frontend_effects_);
    observer_(seen, now_, frontend_effects_);
  } else {
    frontend_.on(std::move(event), now_, frontend_effects_);
  }
  for (FrontendEffect& effect : frontend_effects_) carry_out(effect);
}

void World::carry_out(FrontendEffect& effect) {
  if (auto* reply = std::get_if<ReplyToClient>(&effect)) {
    outside_.answered(std::move(reply->reply), now_);
  } else if (auto* tell = std::get_if<TellBackend>(&effect)) {
    if (tell->backend.value > nodes_.size()) return;  // no node of this world: it was injected
    to_nodes_.push_back(
        {now_ + options_.link, next_order_++, tell->backend.value - 1, std::move(tell->command)});
  } else if (auto* model = std::get_if<SendModelFile>(&effect)) {
    if (model->backend.value > nodes_.size()) return;
    call_at(now_ + options_.link, [this, index = model->backend.value - 1, name = model->sha256] {
      if (nodes_[index].core != nullptr) feed_node(index, ModelStored{name, "/store/" + name});
    });
  } else if (const auto* request = std::get_if<MakePlan>(&effect)) {
    plan(*request);
  } else if (const auto* step = std::get_if<StepToRun>(&effect)) {
    call_at(now_, [this, done = StepDone{step->id, run_step(step->step, step->inputs)}] {
      feed_frontend(done);
    });
  } else if (auto* note = std::get_if<Note>(&effect)) {
    notes_.push_back(std::move(note->text));
  } else if (std::holds_alternative<Drained>(effect)) {
    drained_ = true;
  }
  // DropBackend: nobody goes silent here, and no two nodes have one name.
}

void World::plan(const MakePlan& request) {
  PlanMade made = make_plan(request, *knowledge_.policy);
  plans_.push_back(made.number);
  faults_ = made.faults;
  call_at(now_ + options_.planning, [this, made = std::move(made)] { feed_frontend(made); });
}

// ---- the nodes

World::NodeIndex World::index_of(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&name](const Node& node) {
    return node.core != nullptr && node.name == name;
  });
  return static_cast<NodeIndex>(found - nodes_.begin());
}

void World::add_node(const std::string& name, const std::vector<schedule::Device>& devices) {
  BackendCoreOptions options;
  options.node = name;
  options.profiles = knowledge_.profiles;
  options.measured = knowledge_.measured;
  options.all_simulated = true;
  for (const schedule::Device& device : devices) options.devices.push_back({device, "simulated"});
  Node& node = nodes_.emplace_back();
  node.name = name;
  node.id = BackendId{nodes_.size()};
  node.core = std::make_unique<BackendCore>(std::move(options));
  feed_node(nodes_.size() - 1, FrontendConnected{});
}

void World::kill_node(const std::string& name) {
  Node& node = nodes_[index_of(name)];
  node.core = nullptr;
  node.proxies.clear();
  call_at(now_ + options_.link, [this, id = node.id] {
    feed_frontend(BackendGone{id, {StatusCode::unavailable, "the connection was reset"}});
  });
}

void World::stop_node(const std::string& name) { feed_node(index_of(name), ShutDown{}); }

bool World::kill_a_proxy(const std::string& name) {
  const NodeIndex index = index_of(name);
  Node& node = nodes_[index];
  GpuletId chosen{UINT64_MAX};
  for (const auto& [id, proxy] : node.proxies) {
    if (node.core->phase_of(id) == GpuletPhase::ready) chosen = std::min(chosen, id);
  }
  if (node.proxies.erase(chosen) == 0) return false;
  ProxyEnded ended{chosen, {StatusCode::unavailable, "killed by signal 9"}};
  ended.end.signal = 9;
  feed_node(index, std::move(ended));
  return true;
}

void World::see_device(const std::string& name, std::uint32_t device, Status fault) {
  feed_node(index_of(name), DeviceSeen{device, std::move(fault)});
}

void World::arrive(NodeIndex index, BackendCommand& command) {
  if (auto* batch = std::get_if<Batch>(&command)) {
    if (!batch->inputs.empty()) {
      std::vector<std::byte> together;
      for (const Bytes& slice : batch->inputs) {
        together.insert(together.end(), slice.view().begin(), slice.view().end());
      }
      batch->inputs = {Bytes::own(std::move(together))};
    }
    const bool placed = nodes_[index].core->takes_batches(batch->gpulet);
    feed_node(index, BatchArrived{std::move(*batch), now_, placed});
  } else if (auto* create = std::get_if<CreateGpulet>(&command)) {
    feed_node(index, GpuletAsked{std::move(*create), {}});
  } else if (auto* assign = std::get_if<AssignGpulet>(&command)) {
    feed_node(index, std::move(*assign));
  } else if (const auto* set = std::get_if<SetCores>(&command)) {
    feed_node(index, *set);
  } else if (auto* retire = std::get_if<RetireGpulet>(&command)) {
    feed_node(index, *retire);
  } else if (auto* welcome = std::get_if<Welcome>(&command)) {
    feed_node(index, *welcome);
  } else if (auto* beat = std::get_if<Heartbeat>(&command)) {
    feed_node(index, *beat);
  }
}

void World::feed_node(NodeIndex index, BackendEvent event) {
  node_effects_.clear();
  nodes_[index].core->on(std::move(event), now_, node_effects_);
  for (BackendEffect& effect : node_effects_) carry_out(index, effect);
  Node& node = nodes_[index];
  const Time wake = node.core->next_wakeup();
  if (wake >= node.wake) return;
  node.wake = wake;
  Timer timer;
  timer.time = wake;
  timer.order = next_order_++;
  timer.kind = Timer::Kind::node_wakes;
  timer.node = index;
  timers_.push(timer);
}

void World::tell_node_at(Time time, NodeIndex index, GpuletId gpulet, std::uint64_t life,
                         BackendEvent event) {
  call_at(time, [this, index, gpulet, life, event = std::move(event)] {
    const auto found = nodes_[index].proxies.find(gpulet);
    if (found != nodes_[index].proxies.end() && found->second.life == life) feed_node(index, event);
  });
}

void World::carry_out(NodeIndex index, BackendEffect& effect) {
  Node& node = nodes_[index];
  const auto ended = [this, index](GpuletId gpulet, const Status& reason) {
    nodes_[index].proxies.erase(gpulet);
    call_at(now_, [this, index, gpulet, reason] {
      if (nodes_[index].core != nullptr) feed_node(index, ProxyEnded{gpulet, reason});
    });
  };
  if (auto* tell = std::get_if<TellFrontend>(&effect)) {
    to_frontend_.push_back({now_ + options_.link, next_order_++, index, std::move(tell->message)});
  } else if (auto* run = std::get_if<RunOnProxy>(&effect)) {
    const GpuletId gpulet = run->gpulet;
    Proxy& proxy = node.proxies.at(gpulet);
    proxy.batches.push_back(std::move(*run));
    if (!proxy.running) run_next(index, gpulet, proxy);
  } else if (const auto* start = std::get_if<StartGpulet>(&effect)) {
    start_process(index, *start);
  } else if (const auto* activate = std::get_if<ActivateShare>(&effect)) {
    const GpuletId gpulet = activate->gpulet;
    tell_node_at(now_, index, gpulet, node.proxies.at(gpulet).life, ShareActive{gpulet, {}});
  } else if (const auto* adjust = std::get_if<AdjustCores>(&effect)) {
    const GpuletId gpulet = adjust->gpulet;
    Proxy& proxy = node.proxies.at(gpulet);
    stretch(index, gpulet, proxy, adjust->stretch);
    tell_node_at(now_, index, gpulet, proxy.life, CoresSet{gpulet, {}});
  } else if (const auto* finish = std::get_if<FinishProxy>(&effect)) {
    Proxy& proxy = node.proxies.at(finish->gpulet);
    proxy.finishing = true;
    if (!proxy.running) ended(finish->gpulet, {});
  } else if (const auto* kill = std::get_if<KillProxy>(&effect)) {
    ended(kill->gpulet, kill->reason);
  }
  // DropFrontend: the frontend does not go silent here.
}

// ---- processes

void World::start_process(NodeIndex index, const StartGpulet& start) {
  const GpuletId id = start.gpulet;
  const std::uint64_t life = next_life_++;
  Proxy& proxy = nodes_[index].proxies[id];
  proxy = Proxy{};
  proxy.life = life;
  const Time started = now_ + options_.process_start;
  const auto models = static_cast<std::int64_t>(start.models.models.size());
  tell_node_at(started, index, id, life, ProxyStarted{id});
  ProxyLoaded loaded{id, {}};
  for (const LoadModel& model : start.models.models) {
    for (const std::string& node : {std::string(), nodes_[index].name}) {
      const auto failure = load_failures_.find({model.name, node});
      if (!loaded.status.ok() || failure == load_failures_.end()) continue;
      loaded.status = failure->second.why;
      loaded.cause = failure->second.cause;
      // As backends do: they know it of files, but not where no process can be made.
      const bool of_a_file =
          loaded.cause == FailureCause::node_disk || loaded.cause == FailureCause::node_store;
      if (of_a_file || !is_machine_cause(loaded.cause)) loaded.failed_model = model.name;
    }
  }
  tell_node_at(started + models * options_.model_load, index, id, life, std::move(loaded));
}

void World::run_next(NodeIndex index, GpuletId gpulet, Proxy& proxy) {
  proxy.running = true;
  proxy.began = now_;
  end_batch_at(now_ + proxy.batches.front().batch.simulated_latency, index, gpulet, proxy);
}

void World::end_batch_at(Time time, NodeIndex index, GpuletId gpulet, Proxy& proxy) {
  Timer timer;
  timer.time = time;
  timer.order = next_order_++;
  timer.kind = Timer::Kind::batch_done;
  timer.node = index;
  timer.gpulet = gpulet;
  timers_.push(timer);
  proxy.ends = time;
  proxy.end_order = timer.order;
}

void World::stretch(NodeIndex index, GpuletId gpulet, Proxy& proxy, double factor) {
  const auto stretched = [factor](Duration duration) {
    return from_seconds(to_seconds(duration) * factor);
  };
  for (RunOnProxy& waiting : proxy.batches)
    waiting.batch.simulated_latency = stretched(waiting.batch.simulated_latency);
  if (!proxy.running || factor == 1) return;
  end_batch_at(now_ + stretched(proxy.ends - now_), index, gpulet, proxy);
  proxy.batches.front().batch.simulated_latency = proxy.ends - proxy.began;
}

bool World::crash(const Timer& timer, const Proxy& proxy) {
  const RunOnProxy& done = proxy.batches.front();
  const auto crash = crashes_.find(done.batch.model);
  if (crash == crashes_.end()) return false;
  const auto input = done.input.view();
  if (std::find(input.begin(), input.end(), crash->second.input) == input.end()) return false;
  nodes_[timer.node].proxies.erase(timer.gpulet);
  ProxyEnded ended{timer.gpulet, {StatusCode::unavailable, "its process crashed"}};
  ended.end.signal = crash->second.signal;
  feed_node(timer.node, std::move(ended));
  return true;
}

void World::batch_done(const Timer& timer) {
  Node& node = nodes_[timer.node];
  const auto found = node.proxies.find(timer.gpulet);
  if (found == node.proxies.end() || found->second.end_order != timer.order) return;
  Proxy& proxy = found->second;
  if (crash(timer, proxy)) return;
  RunOnProxy done = std::move(proxy.batches.front());
  proxy.batches.pop_front();
  proxy.running = !proxy.batches.empty();
  const bool ends = proxy.finishing && !proxy.running;
  if (proxy.running) run_next(timer.node, timer.gpulet, proxy);
  const BatchRan ran{done.batch.id, {}, done.input.size(), {}, done.batch.simulated_latency};
  feed_node(timer.node, ProxyRan{timer.gpulet, ran, std::move(done.input)});
  if (!ends) return;
  node.proxies.erase(timer.gpulet);
  feed_node(timer.node, ProxyEnded{timer.gpulet, {}});
}

}  // namespace gpulet::simulate
