#include "simulate/virtual_cluster.h"

#include <algorithm>
#include <utility>

#include "gpulet/base/random.h"
#include "gpulet/serve/plans/planning.h"

namespace gpulet::simulate {

using namespace serve;  // NOLINT(google-build-using-namespace): its vocabulary throughout

VirtualCluster::VirtualCluster(const VirtualTimings& timings, FrontendOptions frontend,
                               std::vector<ServedModel> models, Knowledge knowledge,
                               VirtualClients& clients, ApplicationList applications)
    : timings_(timings),
      knowledge_(std::move(knowledge)),
      clients_(clients),
      models_(std::move(models)),
      applications_(std::move(applications)) {
  add_frontend(std::move(frontend));
}

std::size_t VirtualCluster::add_frontend(FrontendOptions options) {
  const FrontendIndex added = frontends_.size();
  if (options.clustered) options.member = member_of(added);
  frontends_.push_back({std::make_unique<FrontendCore>(
      std::move(options),
      Catalogue{models_, knowledge_.profiles, knowledge_.believed, applications_}, now_)});
  for (FrontendIndex other = 0; other < added; ++other) connect_peers(other, added);
  return added;
}

// ---- time

Time VirtualCluster::next_event() const {
  Time next = clients_.next_request();
  for (const Frontend& frontend : frontends_) {
    if (frontend.core != nullptr && !frontend.paused)
      next = std::min(next, frontend.core->next_wake());
  }
  if (!to_nodes_.empty()) next = std::min(next, to_nodes_.front().time);
  if (!to_frontend_.empty()) next = std::min(next, to_frontend_.front().time);
  if (!timers_.empty()) next = std::min(next, timers_.top().time);
  return next;
}

void VirtualCluster::run_until(Time time) {
  while (true) {
    const Time next = next_event();
    if (next >= time) break;
    now_ = std::max(now_, next);
    while (handle_next()) ++events_;
    while (clients_.next_request() <= now_) {
      InferRequest request = clients_.take_request();
      send_request(std::move(request), clients_.age_of_taken());
      ++events_;
    }
    for (FrontendIndex i = 0; i < frontends_.size(); ++i) {
      Frontend& frontend = frontends_[i];
      if (frontend.core == nullptr || frontend.paused) continue;
      if (!frontend.settle_due && frontend.core->next_wake() > now_) continue;
      feed_frontend(i, Settle{});
      frontend.settle_due = false;
    }
    const FrontendCore* const entry = frontends_[entry_].core.get();
    if (entry != nullptr && entry->epoch() != epoch_seen_) {
      epoch_seen_ = entry->epoch();
      clients_.plan_in_force(entry->plan(), now_);
    }
  }
  now_ = std::max(now_, time);
}

void VirtualCluster::send_request(InferRequest request, Duration age) {
  const FrontendIndex entry = all_entries_ ? sent_++ % frontends_.size() : entry_;
  if (frontends_[entry].core != nullptr)
    return feed_frontend(entry,
                         RequestReceived{ClientId{1}, std::move(request), age, false, false});
  InferReply refused;
  refused.tag = request.tag;
  refused.status = {StatusCode::unavailable, "connection refused"};
  clients_.answered(std::move(refused), now_);
}

bool VirtualCluster::handle_next() {
  enum class Source : std::uint8_t { none, node, frontend, timer };
  Source source = Source::none;
  Time time{};
  std::uint64_t order = 0;
  const auto consider = [&](Source candidate, Time at, std::uint64_t at_order) {
    if (at > now_) return;
    if (source != Source::none && (at > time || (at == time && at_order > order))) return;
    source = candidate;
    time = at;
    order = at_order;
  };
  if (!to_nodes_.empty()) consider(Source::node, to_nodes_.front().time, to_nodes_.front().order);
  if (!to_frontend_.empty())
    consider(Source::frontend, to_frontend_.front().time, to_frontend_.front().order);
  if (!timers_.empty()) consider(Source::timer, timers_.top().time, timers_.top().order);

  switch (source) {
    case Source::none:
      return false;
    case Source::node: {
      auto sent = std::move(to_nodes_.front());
      to_nodes_.pop_front();
      const Link& link = nodes_[sent.node].links[sent.frontend];
      if (nodes_[sent.node].core == nullptr || link.frontend != sent.connection || link.cut) break;
      receiving_from_ = sent.connection;
      std::visit([&](auto& command) { receive(sent.node, command); }, sent.message);
      break;
    }
    case Source::frontend: {
      auto sent = std::move(to_frontend_.front());
      to_frontend_.pop_front();
      const Link& link = nodes_[sent.node].links[sent.frontend];
      if (nodes_[sent.node].core == nullptr || link.frontend != sent.connection || link.cut) break;
      feed_frontend(sent.frontend, BackendMessageReceived{link.backend, std::move(sent.message)});
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

void VirtualCluster::handle(const Timer& timer) {
  switch (timer.kind) {
    case Timer::Kind::batch_done:
      batch_done(timer);
      break;
    case Timer::Kind::node_wakes: {
      Node& node = nodes_[timer.node];
      if (node.core == nullptr || timer.time != node.wake) break;
      node.wake = kNever;
      feed_node(timer.node, node::TimePassed{});
      break;
    }
    case Timer::Kind::call: {
      const auto found = calls_.find(timer.order);
      const std::function<void()> call = std::move(found->second);
      calls_.erase(found);
      call();
      break;
    }
  }
}

std::uint64_t VirtualCluster::add_timer(Time time, Timer::Kind kind, NodeIndex node,
                                        GpuletId gpulet) {
  const std::uint64_t order = next_order_++;
  timers_.push({time, order, kind, node, gpulet});
  return order;
}

void VirtualCluster::call_at(Time time, std::function<void()> call) {
  calls_.emplace(add_timer(std::max(time, now_), Timer::Kind::call, 0, {}), std::move(call));
}

void VirtualCluster::change_catalogue_at(Time time, CatalogueChanged change) {
  call_at(time, [this, change = std::move(change)] {
    for (FrontendIndex i = 0; i < frontends_.size(); ++i) feed_frontend(i, change);
  });
}

void VirtualCluster::set_load_failure(const std::string& model, Status why, FailureCause cause,
                                      const std::string& node) {
  if (why.ok()) {
    load_failures_.erase({model, node});
  } else {
    load_failures_.insert_or_assign({model, node}, LoadFailure{std::move(why), cause});
  }
}

void VirtualCluster::crash_on(const std::string& model, std::byte input, std::uint8_t signal) {
  crashes_.insert_or_assign(model, Crash{input, signal});
}

void VirtualCluster::slow_on(const std::string& model, std::byte input, Duration latency) {
  slow_inputs_[model].push_back({input, latency});
}

// ---- connections

void VirtualCluster::connect(NodeIndex node, FrontendIndex frontend) {
  if (frontends_[frontend].core == nullptr) return;
  const std::uint64_t id = next_connection_++;
  nodes_[node].links[frontend] = {FrontendId{id}, BackendId{id}, false};
  node_of_connection_.emplace(BackendId{id}, node);
  feed_node(node, node::FrontendConnected{FrontendId{id}});
}

void VirtualCluster::disconnect(NodeIndex node, FrontendIndex frontend, const Status& why) {
  const Link link = std::exchange(nodes_[node].links[frontend], Link{});
  if (link.frontend == FrontendId{}) return;
  call_at(now_ + timings_.link, [this, node, frontend, link, why] {
    if (nodes_[node].core != nullptr) feed_node(node, node::FrontendDisconnected{link.frontend});
    feed_frontend(frontend, BackendDisconnected{link.backend, why});
  });
}

std::optional<VirtualCluster::NodeIndex> VirtualCluster::node_of(FrontendIndex frontend,
                                                                 BackendId id) const {
  const auto found = node_of_connection_.find(id);
  if (found == node_of_connection_.end()) return std::nullopt;
  if (nodes_[found->second].links[frontend].backend != id) return std::nullopt;
  return found->second;
}

VirtualCluster::FrontendIndex VirtualCluster::frontend_of(NodeIndex node,
                                                          FrontendId connection) const {
  const std::vector<Link>& links = nodes_[node].links;
  return static_cast<FrontendIndex>(
      std::find_if(links.begin(), links.end(),
                   [&](const Link& link) { return link.frontend == connection; }) -
      links.begin());
}

void VirtualCluster::cut(const std::string& node, std::size_t frontend) {
  nodes_[index_of(node)].links[frontend].cut = true;
}

void VirtualCluster::heal(const std::string& node, std::size_t frontend) {
  const NodeIndex index = index_of(node);
  disconnect(index, frontend, {StatusCode::unavailable, "connection reset"});
  // After both sides have seen the end of the connection.
  call_at(now_ + 2 * timings_.link, [this, index, frontend] {
    if (nodes_[index].core != nullptr) connect(index, frontend);
  });
}

// ---- the frontends

void VirtualCluster::feed_frontend(FrontendIndex index, FrontendEvent event) {
  Frontend& frontend = frontends_[index];
  if (frontend.core == nullptr) return;
  if (frontend.paused) {
    frontend.held.push_back(std::move(event));
    return;
  }
  frontend.settle_due = true;
  acting_ = index;
  frontend_effects_.clear();
  if (observer_) {
    const FrontendEvent seen = event;
    frontend.core->on(std::move(event), now_, frontend_effects_);
    observer_(seen, now_, frontend_effects_);
  } else {
    frontend.core->on(std::move(event), now_, frontend_effects_);
  }
  for (FrontendEffect& effect : frontend_effects_)
    std::visit([this](auto& one) { carry_out(one); }, effect);
}

void VirtualCluster::kill_frontend(std::size_t frontend) {
  disconnect_peers(frontend);
  frontends_[frontend] = {};
  for (NodeIndex node = 0; node < nodes_.size(); ++node)
    disconnect(node, frontend, {StatusCode::unavailable, "connection reset"});
}

void VirtualCluster::pause_frontend(std::size_t frontend) {
  if (frontends_[frontend].paused) return;
  frontends_[frontend].paused = true;
  call_at(now_ + kPeerSilence, [this, frontend, pause = ++frontends_[frontend].pauses] {
    const Frontend& silent = frontends_[frontend];
    if (silent.paused && silent.pauses == pause) disconnect_peers(frontend);
  });
}

void VirtualCluster::resume_frontend(std::size_t frontend) {
  if (!std::exchange(frontends_[frontend].paused, false)) return;
  while (!frontends_[frontend].held.empty()) {
    FrontendEvent event = std::move(frontends_[frontend].held.front());
    frontends_[frontend].held.pop_front();
    feed_frontend(frontend, std::move(event));
  }
  for (FrontendIndex other = 0; other < frontends_.size(); ++other) {
    if (other != frontend) connect_peers(other, frontend);
  }
}

// ---- connections between frontends

void VirtualCluster::connect_peers(FrontendIndex one, FrontendIndex other) {
  if (frontends_[one].core == nullptr || frontends_[other].core == nullptr) return;
  connect_peer(one, other);
  connect_peer(other, one);
}

void VirtualCluster::connect_peer(FrontendIndex from, FrontendIndex to) {
  const bool connected =
      std::any_of(peer_links_.begin(), peer_links_.end(),
                  [&](const PeerLink& link) { return link.from == from && link.to == to; });
  if (connected) return;
  peer_links_.push_back({from, to, ClientId{next_peer_client_++}});
  feed_frontend(from, PeerConnected{member_of(to), kProtocolLevel});
  feed_frontend(from, PeerServes{member_of(to), frontends_[to].told});
}

void VirtualCluster::disconnect_peers(FrontendIndex frontend) {
  for (FrontendIndex i = 0; i < frontends_.size(); ++i) {
    if (i == frontend) continue;
    std::vector<PeerLink> ended;
    std::erase_if(peer_links_, [&](const PeerLink& link) {
      const bool ends =
          (link.from == frontend && link.to == i) || (link.from == i && link.to == frontend);
      if (ends) ended.push_back(link);
      return ends;
    });
    for (const PeerLink& link : ended) {
      call_at(now_ + timings_.link, [this, link] {
        feed_frontend(link.from, PeerDisconnected{member_of(link.to)});
        feed_frontend(link.to, ClientDisconnected{link.client});
      });
    }
  }
}

const VirtualCluster::PeerLink* VirtualCluster::peer_link(ClientId client) const {
  const auto found = std::find_if(peer_links_.begin(), peer_links_.end(),
                                  [&](const PeerLink& link) { return link.client == client; });
  return found == peer_links_.end() ? nullptr : &*found;
}

void VirtualCluster::carry_out(ReplyToClient& effect) {
  if (effect.client.value < kFirstPeerClient)
    return clients_.answered(std::move(effect.reply), now_);
  reply_to_peer(effect.client, {std::move(effect.reply), false});
}

void VirtualCluster::carry_out(const ReplyElsewhere& effect) {
  ForwardReply reply;
  reply.reply.tag = effect.tag;
  reply.elsewhere = true;
  reply_to_peer(effect.client, std::move(reply));
}

void VirtualCluster::reply_to_peer(ClientId client, ForwardReply reply) {
  call_at(now_ + timings_.link, [this, client, reply = std::move(reply)] {
    const PeerLink* const link = peer_link(client);
    if (link != nullptr) feed_frontend(link->from, PeerReplied{member_of(link->to), reply});
  });
}

void VirtualCluster::carry_out(SendToPeer& effect) {
  const auto found =
      std::find_if(peer_links_.begin(), peer_links_.end(), [&](const PeerLink& link) {
        return link.from == acting_ && member_of(link.to) == effect.member;
      });
  if (found == peer_links_.end()) return;
  call_at(now_ + timings_.link,
          [this, client = found->client, message = std::move(effect.message)] {
            if (const PeerLink* const link = peer_link(client)) deliver(*link, message);
          });
}

void VirtualCluster::deliver(const PeerLink& link, const PeerRequest& message) {
  if (const auto* const forward = std::get_if<Forward>(&message)) {
    feed_frontend(link.to, RequestReceived{link.client, forward->request, forward->age, true,
                                           forward->delayed});
  } else if (const auto* const cancel = std::get_if<CancelForward>(&message)) {
    feed_frontend(link.to, RequestCancelled{link.client, cancel->tag, cancel->model});
  } else if (const auto* const routes = std::get_if<SetRoutes>(&message)) {
    feed_frontend(link.to, RoutesReceived{member_of(link.from), *routes});
  } else if (const auto* const report = std::get_if<OwnerReport>(&message)) {
    feed_frontend(link.to, OwnerReported{member_of(link.from), *report});
  }
}

void VirtualCluster::carry_out(TellPeers& effect) {
  frontends_[acting_].told = std::move(effect.served);
  for (const PeerLink& link : peer_links_) {
    if (link.to != acting_) continue;
    call_at(now_ + timings_.link, [this, from = link.from, to = link.to] {
      feed_frontend(from, PeerServes{member_of(to), frontends_[to].told});
    });
  }
}

void VirtualCluster::carry_out(SendToBackend& effect) {
  const std::optional<NodeIndex> node = node_of(acting_, effect.backend);
  if (!node) return;
  to_nodes_.push_back({now_ + timings_.link, next_order_++, *node, acting_,
                       nodes_[*node].links[acting_].frontend, std::move(effect.command)});
}

void VirtualCluster::carry_out(const SendModelFile& effect) {
  const std::optional<NodeIndex> node = node_of(acting_, effect.backend);
  if (!node) return;
  call_at(now_ + timings_.link, [this, node = *node, name = effect.sha256] {
    if (nodes_[node].core != nullptr) feed_node(node, node::ModelStored{name, "/store/" + name});
  });
}

// The frontend needs no BackendDisconnected for it. The node connects again, unless the two cannot
// reach each other.
void VirtualCluster::carry_out(const DisconnectBackend& effect) {
  const std::optional<NodeIndex> node = node_of(acting_, effect.backend);
  if (!node) return;
  const Link link = nodes_[*node].links[acting_];
  if (link.cut) return;
  nodes_[*node].links[acting_] = {};
  call_at(now_ + timings_.link, [this, node = *node, frontend = acting_, link] {
    if (nodes_[node].core == nullptr) return;
    feed_node(node, node::FrontendDisconnected{link.frontend});
    connect(node, frontend);
  });
}

void VirtualCluster::carry_out(const MakePlan& effect) {
  PlanMade made = make_plan(effect, *knowledge_.policy);
  plans_.push_back(made.number);
  faults_ = made.result.faults;
  call_at(now_ + timings_.planning,
          [this, frontend = acting_, made = std::move(made)] { feed_frontend(frontend, made); });
}

void VirtualCluster::carry_out(const StepToRun& effect) {
  call_at(now_, [this, frontend = acting_,
                 done = StepCompleted{effect.id, run_step(effect.step, effect.inputs)}] {
    feed_frontend(frontend, done);
  });
}

// ---- the nodes

VirtualCluster::NodeIndex VirtualCluster::index_of(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&name](const Node& node) {
    return node.core != nullptr && node.name == name;
  });
  return static_cast<NodeIndex>(found - nodes_.begin());
}

void VirtualCluster::add_node(const std::string& name,
                              const std::vector<schedule::Device>& devices) {
  node::BackendCoreOptions options;
  options.node = name;
  options.profiles = knowledge_.profiles;
  options.interference = knowledge_.simulated;
  options.all_simulated = true;
  options.simulated_cv = timings_.batch_cv;
  options.simulation_seed = stream_seed(timings_.batch_seed, name);
  for (const schedule::Device& device : devices) options.devices.push_back({device, "simulated"});
  Node& node = nodes_.emplace_back();
  node.name = name;
  for (const schedule::Device& device : devices) node.device_cores.push_back(device.cores);
  node.pace = timings_.pace;
  node.links.resize(frontends_.size());
  node.core = std::make_unique<node::BackendCore>(std::move(options));
  for (FrontendIndex i = 0; i < frontends_.size(); ++i) connect(nodes_.size() - 1, i);
}

void VirtualCluster::kill_node(const std::string& name) {
  const NodeIndex index = index_of(name);
  nodes_[index].core = nullptr;
  nodes_[index].proxies.clear();
  for (FrontendIndex i = 0; i < frontends_.size(); ++i)
    disconnect(index, i, {StatusCode::unavailable, "connection reset"});
}

bool VirtualCluster::kill_proxy(const std::string& name) {
  const NodeIndex index = index_of(name);
  Node& node = nodes_[index];
  GpuletId chosen{UINT64_MAX};
  for (const auto& [id, proxy] : node.proxies) {
    if (node.core->phase_of(id) == node::GpuletPhase::ready) chosen = std::min(chosen, id);
  }
  if (node.proxies.erase(chosen) == 0) return false;
  node::ProxyEnded ended{chosen, {StatusCode::unavailable, "killed by signal 9"}};
  ended.end.signal = 9;
  feed_node(index, std::move(ended));
  return true;
}

void VirtualCluster::report_device_health(const std::string& node, std::uint32_t device,
                                          Status fault) {
  feed_node(index_of(node), node::DeviceHealthReported{device, std::move(fault)});
}

void VirtualCluster::receive(NodeIndex node, Batch& command) {
  if (!command.inputs.empty()) {
    std::vector<std::byte> together;
    for (const Bytes& slice : command.inputs)
      together.insert(together.end(), slice.view().begin(), slice.view().end());
    command.inputs = {Bytes::own(std::move(together))};
  }
  const bool placed = nodes_[node].core->takes_batches(receiving_from_, command.gpulet);
  command_node(node, node::BatchArrived{std::move(command), now_, placed});
}

void VirtualCluster::feed_node(NodeIndex index, node::BackendEvent event) {
  node_effects_.clear();
  nodes_[index].core->on(std::move(event), now_, node_effects_);
  for (node::BackendEffect& effect : node_effects_)
    std::visit([this, index](auto& one) { carry_out(index, one); }, effect);
  Node& node = nodes_[index];
  const Time wake = node.core->next_wakeup();
  if (wake >= node.wake) return;
  node.wake = wake;
  add_timer(wake, Timer::Kind::node_wakes, index, {});
}

void VirtualCluster::feed_node_at(Time time, NodeIndex node, GpuletId gpulet, std::uint64_t life,
                                  node::BackendEvent event) {
  call_at(time, [this, node, gpulet, life, event = std::move(event)] {
    const auto found = nodes_[node].proxies.find(gpulet);
    if (found != nodes_[node].proxies.end() && found->second.life == life) feed_node(node, event);
  });
}

void VirtualCluster::carry_out(NodeIndex node, node::SendToFrontend& effect) {
  const FrontendIndex frontend = frontend_of(node, effect.frontend);
  if (frontend == frontends_.size()) return;
  if (filter_ && !filter_(nodes_[node].name, effect.message)) return;
  to_frontend_.push_back({now_ + timings_.link, next_order_++, node, frontend, effect.frontend,
                          std::move(effect.message)});
}

void VirtualCluster::carry_out(NodeIndex node, const node::DisconnectFrontend& effect) {
  const FrontendIndex frontend = frontend_of(node, effect.frontend);
  if (frontend == frontends_.size()) return;
  const bool cut = nodes_[node].links[frontend].cut;
  disconnect(node, frontend, effect.reason);
  if (cut) return;
  call_at(now_ + 2 * timings_.link, [this, node, frontend] {
    if (nodes_[node].core != nullptr) connect(node, frontend);
  });
}

void VirtualCluster::carry_out(NodeIndex node, const node::StartGpulet& effect) {
  const GpuletId id = effect.gpulet;
  const std::uint64_t life = next_life_++;
  Proxy& proxy = nodes_[node].proxies[id];
  proxy = Proxy{};
  proxy.life = life;
  proxy.cores = nodes_[node].device_cores[effect.device] * effect.size.fraction();
  const Time started = now_ + timings_.process_start;
  Duration load{};
  for (const ModelToLoad& model : effect.models.models) {
    const auto known = load_times_.find(model.name);
    load += known == load_times_.end() ? timings_.model_load : known->second;
  }
  feed_node_at(started, node, id, life, node::ProxyStarted{id});
  node::ProxyLoaded loaded{id, {}};
  for (const ModelToLoad& model : effect.models.models) {
    for (const std::string& where : {std::string(), nodes_[node].name}) {
      const auto failure = load_failures_.find({model.name, where});
      if (!loaded.status.ok() || failure == load_failures_.end()) continue;
      loaded.status = failure->second.why;
      loaded.cause = failure->second.cause;
      // Backends name the model of a failure with its file, but not of one to make a process.
      const bool of_a_file =
          loaded.cause == FailureCause::node_disk || loaded.cause == FailureCause::node_store;
      if (of_a_file || !is_machine_cause(loaded.cause)) loaded.failed_model = model.name;
    }
  }
  const bool hangs = std::any_of(effect.models.models.begin(), effect.models.models.end(),
                                 [&](const ModelToLoad& model) {
                                   return load_hangs_.contains({model.name, {}}) ||
                                          load_hangs_.contains({model.name, nodes_[node].name});
                                 });
  if (!hangs) feed_node_at(started + load, node, id, life, std::move(loaded));
}

void VirtualCluster::carry_out(NodeIndex node, const node::ActivateShare& effect) {
  const GpuletId gpulet = effect.gpulet;
  feed_node_at(now_, node, gpulet, nodes_[node].proxies.at(gpulet).life,
               node::ShareActive{gpulet, {}});
}

void VirtualCluster::carry_out(NodeIndex node, const node::AdjustCores& effect) {
  const GpuletId gpulet = effect.gpulet;
  Proxy& proxy = nodes_[node].proxies.at(gpulet);
  count_busy(proxy);
  proxy.cores = effect.cores;
  stretch(node, gpulet, proxy, effect.stretch);
  feed_node_at(now_, node, gpulet, proxy.life, node::CoresSet{gpulet, {}});
}

void VirtualCluster::carry_out(NodeIndex node, node::RunOnProxy& effect) {
  const GpuletId gpulet = effect.gpulet;
  Proxy& proxy = nodes_[node].proxies.at(gpulet);
  proxy.batches.push_back(std::move(effect));
  if (!proxy.running) run_next(node, gpulet, proxy);
}

void VirtualCluster::carry_out(NodeIndex node, const node::FinishProxy& effect) {
  Proxy& proxy = nodes_[node].proxies.at(effect.gpulet);
  proxy.finishing = true;
  if (!proxy.running) end_process(node, effect.gpulet, {});
}

// ---- processes

void VirtualCluster::end_process(NodeIndex node, GpuletId gpulet, const Status& reason) {
  nodes_[node].proxies.erase(gpulet);
  call_at(now_, [this, node, gpulet, reason] {
    if (nodes_[node].core != nullptr) feed_node(node, node::ProxyEnded{gpulet, reason});
  });
}

void VirtualCluster::run_next(NodeIndex node, GpuletId gpulet, Proxy& proxy) {
  proxy.running = true;
  proxy.began = now_;
  proxy.counted_until = now_;
  node::RunOnProxy& batch = proxy.batches.front();
  batch.batch.simulated_latency = latency_of(node, batch);
  end_batch_at(now_ + batch.batch.simulated_latency, node, gpulet, proxy);
}

Duration VirtualCluster::latency_of(NodeIndex node, const node::RunOnProxy& batch) const {
  Duration latency = batch.batch.simulated_latency;
  if (nodes_[node].pace != 1) latency = from_seconds(to_seconds(latency) * nodes_[node].pace);
  const auto slow = slow_inputs_.find(batch.batch.model);
  if (slow == slow_inputs_.end()) return latency;
  const auto input = batch.input.view();
  for (const SlowInput& one : slow->second) {
    if (std::find(input.begin(), input.end(), one.input) != input.end())
      latency = std::max(latency, one.latency);
  }
  return latency;
}

void VirtualCluster::end_batch_at(Time time, NodeIndex node, GpuletId gpulet, Proxy& proxy) {
  proxy.ends = time;
  proxy.end_order = add_timer(time, Timer::Kind::batch_done, node, gpulet);
}

void VirtualCluster::stretch(NodeIndex node, GpuletId gpulet, Proxy& proxy, double factor) {
  const auto stretched = [factor](Duration duration) {
    return from_seconds(to_seconds(duration) * factor);
  };
  for (node::RunOnProxy& batch : proxy.batches)
    batch.batch.simulated_latency = stretched(batch.batch.simulated_latency);
  if (!proxy.running || factor == 1) return;
  end_batch_at(now_ + stretched(proxy.ends - now_), node, gpulet, proxy);
  proxy.batches.front().batch.simulated_latency = proxy.ends - proxy.began;
}

void VirtualCluster::count_busy(Proxy& proxy) {
  if (!proxy.running) return;
  core_seconds_busy_ += proxy.cores * to_seconds(now_ - proxy.counted_until);
  proxy.counted_until = now_;
}

bool VirtualCluster::crash(const Timer& timer, const Proxy& proxy) {
  const node::RunOnProxy& done = proxy.batches.front();
  constexpr std::uint8_t kSegmentationFault = 11;
  std::uint8_t signal = 0;
  if (crashing_nodes_.contains(nodes_[timer.node].name)) signal = kSegmentationFault;
  const auto input = done.input.view();
  const auto crash = crashes_.find(done.batch.model);
  if (crash != crashes_.end() &&
      std::find(input.begin(), input.end(), crash->second.input) != input.end())
    signal = crash->second.signal;
  if (signal == 0) return false;
  nodes_[timer.node].proxies.erase(timer.gpulet);
  node::ProxyEnded ended{timer.gpulet, {StatusCode::unavailable, "the process crashed"}};
  ended.end.signal = signal;
  feed_node(timer.node, std::move(ended));
  return true;
}

void VirtualCluster::batch_done(const Timer& timer) {
  Node& node = nodes_[timer.node];
  const auto found = node.proxies.find(timer.gpulet);
  if (found == node.proxies.end() || found->second.end_order != timer.order) return;
  Proxy& proxy = found->second;
  if (crash(timer, proxy)) return;
  count_busy(proxy);
  node::RunOnProxy done = std::move(proxy.batches.front());
  proxy.batches.pop_front();
  proxy.running = !proxy.batches.empty();
  const bool ends = proxy.finishing && !proxy.running;
  if (proxy.running) run_next(timer.node, timer.gpulet, proxy);
  const BatchRan ran{done.batch.id, {}, done.input.size(), {}, done.batch.simulated_latency};
  feed_node(timer.node, node::BatchCompleted{timer.gpulet, ran, std::move(done.input)});
  if (!ends) return;
  node.proxies.erase(timer.gpulet);
  feed_node(timer.node, node::ProxyEnded{timer.gpulet, {}});
}

}  // namespace gpulet::simulate
