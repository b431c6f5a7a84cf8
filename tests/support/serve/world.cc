#include "tests/support/serve/world.h"

#include <algorithm>
#include <utility>

#include "gpulet/schedule/policy.h"
#include "gpulet/serve/planning.h"

namespace gpulet::serve::testing {

profile::Profile card_profile(const std::map<std::string, double>& base_ms) {
  profile::Profile profile;
  profile.name = "card";
  for (const auto& [name, base] : base_ms) {
    std::vector<profile::LatencySample> samples;
    for (const int percent : {20, 40, 50, 60, 80, 100}) {
      for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
        samples.push_back({batch, Share{percent}, base * (0.5 + 0.5 * batch) * 100 / percent});
      }
    }
    profile.models.emplace(
        name,
        profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, std::nullopt});
  }
  return profile;
}

ServedModel byte_model(const std::string& name, double slo_ms, double rate) {
  ServedModel model;
  model.name = name;
  model.sha256 = "hash-of-" + name;
  model.inputs = {{"x", DataType::uint8, {1}}};
  model.outputs = {{"y", DataType::uint8, {1}}};
  model.slo_ms = slo_ms;
  model.configured_rate = rate;
  model.max_batch = 16;
  return with_sizes(model).value();
}

World::World(FrontendOptions frontend, std::vector<ServedModel> models,
             const profile::Profile& profile, WorldOptions options)
    : options_(options),
      profiles_(
          std::make_shared<profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}})),
      policy_(schedule::make_policy(frontend.policy).value()),
      frontend_(std::move(frontend), std::move(models), *profiles_, now_) {}

void World::at(Time time, std::function<void()> what) {
  agenda_.push({std::max(time, now_), next_order_++, std::move(what)});
}

void World::run_until(Time time) {
  while (true) {
    Time next = std::min(time, frontend_.next_wake());
    for (const auto& [node, backend] : backends_) next = std::min(next, backend.core.next_wakeup());
    if (!agenda_.empty()) next = std::min(next, agenda_.top().time);
    if (next >= time) break;
    now_ = std::max(now_, next);
    while (!agenda_.empty() && agenda_.top().time <= now_) {
      const std::function<void()> what = agenda_.top().what;
      agenda_.pop();
      what();
    }
    for (auto& [node, backend] : backends_) {
      if (backend.core.next_wakeup() <= now_) feed_backend(node, TimePassed{});
    }
    if (settle_due_ || frontend_.next_wake() <= now_) {
      feed_frontend(Settle{});
      settle_due_ = false;
    }
  }
  now_ = time;
}

void World::request_at(Time time, const std::string& model, std::uint64_t tag, Duration timeout) {
  at(time, [this, model, tag, timeout] {
    InferRequest request;
    request.tag = tag;
    request.model = model;
    request.timeout = timeout;
    request.inputs = {{"", DataType::uint8, {1}}};
    request.payload = Bytes::own({static_cast<std::byte>(tag & 0xffU)});
    feed_frontend(ClientSaid{ClientId{1}, std::move(request)});
  });
}

void World::drain_at(Time time) {
  at(time, [this] { feed_frontend(Drain{}); });
}

void World::feed_frontend(FrontendEvent event) {
  FrontendEffects effects;
  settle_due_ = true;
  frontend_.on(std::move(event), now_, effects);
  for (FrontendEffect& effect : effects) carry_out(effect);
}

std::string World::node_of(BackendId id) const {
  for (const auto& [node, backend] : backends_) {
    if (backend.id == id) return node;
  }
  return {};
}

void World::carry_out(FrontendEffect& effect) {
  if (auto* reply = std::get_if<ReplyToClient>(&effect)) {
    replies_[reply->reply.tag].push_back({now_, std::move(reply->reply)});
  } else if (auto* tell = std::get_if<TellBackend>(&effect)) {
    at(now_ + options_.link,
       [this, node = node_of(tell->backend), command = std::move(tell->command)]() mutable {
         if (backends_.contains(node)) tell_backend(node, command);
       });
  } else if (auto* model = std::get_if<SendModelFile>(&effect)) {
    at(now_ + options_.link, [this, node = node_of(model->backend), sha256 = model->sha256] {
      if (backends_.contains(node)) feed_backend(node, ModelStored{sha256, "/store/" + sha256});
    });
  } else if (auto* plan = std::get_if<MakePlan>(&effect)) {
    plans_.push_back(plan->number);
    at(now_ + options_.planning,
       [this, made = make_plan(*plan, *policy_, *profiles_)] { feed_frontend(made); });
  } else if (auto* note = std::get_if<Note>(&effect)) {
    notes_.push_back(std::move(note->text));
  } else if (std::holds_alternative<Drained>(effect)) {
    drained_ = true;
  }
}

void World::tell_backend(const std::string& node, BackendCommand& command) {
  if (auto* batch = std::get_if<Batch>(&command)) {
    std::vector<std::byte> together;
    for (const Bytes& slice : batch->inputs) {
      together.insert(together.end(), slice.view().begin(), slice.view().end());
    }
    batch->inputs = {Bytes::own(std::move(together))};
    const bool placed = backends_.at(node).core.takes_batches(batch->gpulet);
    feed_backend(node, BatchArrived{std::move(*batch), now_, placed});
  } else if (auto* create = std::get_if<CreateGpulet>(&command)) {
    feed_backend(node, GpuletAsked{std::move(*create), {}});
  } else if (auto* retire = std::get_if<RetireGpulet>(&command)) {
    feed_backend(node, *retire);
  } else if (auto* welcome = std::get_if<Welcome>(&command)) {
    feed_backend(node, *welcome);
  } else if (auto* beat = std::get_if<Heartbeat>(&command)) {
    feed_backend(node, *beat);
  }
}

void World::add_backend(const std::string& node, std::uint32_t devices) {
  BackendCoreOptions options;
  options.node = node;
  options.profiles = profiles_;
  for (std::uint32_t i = 0; i < devices; ++i) {
    schedule::Device device;
    device.key = {node, i};
    device.type = "card";
    device.partitioning = "simulated";
    for (const int percent : {20, 40, 50, 60, 80, 100}) device.sizes.push_back(Share{percent});
    options.devices.push_back({device, "simulated"});
  }
  backends_.emplace(
      node, Backend{BackendId{next_backend_++}, BackendCore(std::move(options)), {}, kNever});
  feed_backend(node, FrontendConnected{});
}

void World::kill_backend(const std::string& node) {
  const BackendId id = backends_.at(node).id;
  backends_.erase(node);
  at(now_ + options_.link, [this, id] {
    feed_frontend(BackendGone{id, {StatusCode::unavailable, "the connection was reset"}});
  });
}

bool World::kill_a_proxy(const std::string& node) {
  Backend& backend = backends_.at(node);
  for (auto& [id, proxy] : backend.proxies) {
    if (backend.core.phase_of(id) != GpuletPhase::ready) continue;
    const GpuletId gpulet = id;
    backend.proxies.erase(gpulet);
    feed_backend(node, ProxyEnded{gpulet, {StatusCode::unavailable, "killed by signal 9"}});
    return true;
  }
  return false;
}

void World::feed_backend(const std::string& node, BackendEvent event) {
  BackendEffects effects;
  backends_.at(node).core.on(std::move(event), now_, effects);
  for (BackendEffect& effect : effects) carry_out(node, effect);
}

void World::carry_out(const std::string& node, BackendEffect& effect) {
  Backend& backend = backends_.at(node);
  if (auto* tell = std::get_if<TellFrontend>(&effect)) {
    at(now_ + options_.link,
       [this, id = backend.id, node, message = std::move(tell->message)]() mutable {
         if (backends_.contains(node)) feed_frontend(BackendSaid{id, std::move(message)});
       });
  } else if (auto* start = std::get_if<StartGpulet>(&effect)) {
    const GpuletId id = start->gpulet;
    const std::uint64_t life = next_life_++;
    backend.proxies[id] = Proxy{{}, {}, false, false, life};
    const auto later = [this, node, id, life](Duration delay, BackendEvent what) {
      at(now_ + delay, [this, node, id, life, what = std::move(what)] {
        if (!backends_.contains(node)) return;
        const auto found = backends_.at(node).proxies.find(id);
        if (found != backends_.at(node).proxies.end() && found->second.life == life)
          feed_backend(node, what);
      });
    };
    later(options_.process_start, ProxyStarted{id});
    later(options_.process_start + options_.model_load, ProxyLoaded{id, {}});
  } else if (auto* activate = std::get_if<ActivateShare>(&effect)) {
    at(now_, [this, node, id = activate->gpulet] {
      if (backends_.contains(node)) feed_backend(node, ShareActive{id, {}});
    });
  } else if (auto* run = std::get_if<RunOnProxy>(&effect)) {
    Proxy& proxy = backend.proxies.at(run->gpulet);
    proxy.waiting.push_back(run->batch);
    proxy.inputs.push_back(run->input);
    run_proxy(node, run->gpulet);
  } else if (auto* finish = std::get_if<FinishProxy>(&effect)) {
    backend.proxies.at(finish->gpulet).finishing = true;
    run_proxy(node, finish->gpulet);
  } else if (auto* kill = std::get_if<KillProxy>(&effect)) {
    backend.proxies.erase(kill->gpulet);
    at(now_, [this, node, id = kill->gpulet, reason = kill->reason] {
      if (backends_.contains(node)) feed_backend(node, ProxyEnded{id, reason});
    });
  }
}

void World::run_proxy(const std::string& node, GpuletId id) {
  Proxy& proxy = backends_.at(node).proxies.at(id);
  if (proxy.running) return;
  if (proxy.waiting.empty()) {
    if (!proxy.finishing) return;
    backends_.at(node).proxies.erase(id);
    at(now_, [this, node, id] {
      if (backends_.contains(node)) feed_backend(node, ProxyEnded{id, {}});
    });
    return;
  }
  proxy.running = true;
  const Duration latency = proxy.waiting.front().simulated_latency;
  at(now_ + latency, [this, node, id, life = proxy.life, latency] {
    if (!backends_.contains(node)) return;
    auto& proxies = backends_.at(node).proxies;
    const auto found = proxies.find(id);
    if (found == proxies.end() || found->second.life != life) return;
    Proxy& same = found->second;
    const BatchRan ran{same.waiting.front().id, {}, same.inputs.front().size(), {}, latency};
    const Bytes output = same.inputs.front();
    same.waiting.pop_front();
    same.inputs.pop_front();
    same.running = false;
    feed_backend(node, ProxyRan{id, ran, output});
    run_proxy(node, id);
  });
}

}  // namespace gpulet::serve::testing
