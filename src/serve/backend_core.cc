#include "gpulet/serve/backend_core.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

constexpr int kSilentHeartbeats = 4;  // a peer silent for so many is gone (messages.h)
// A number from the wire must neither spin the loop nor overflow a time.
constexpr Duration kLeastHeartbeat = std::chrono::milliseconds(1);
constexpr Duration kRarestHeartbeat = std::chrono::hours(1);

}  // namespace

BackendCore::BackendCore(BackendCoreOptions options) : options_(std::move(options)) {
  for (const auto& offer : options_.devices) {
    simulated_.emplace_back(offer.device.type, options_.profiles, options_.measured);
  }
  on_device_.resize(options_.devices.size());
  device_faults_.resize(options_.devices.size());
}

void BackendCore::on(BackendEvent event, Time now, BackendEffects& effects) {
  std::visit([&](auto& of_kind) { on_event(of_kind, Now{now, effects}); }, event);
  if (some_gone_) erase_gone();
  settle_looks();
}

Time BackendCore::next_wakeup() const {
  auto next = kNever;
  if (connected_ && !dropping_) {
    next = heartbeat_every_
               ? std::min(next_heartbeat_, last_heard_ + kSilentHeartbeats * *heartbeat_every_)
               : connected_at_ + options_.welcome_timeout;
  }
  next = std::min(next, leave_by_);
  return looks_.empty() ? next : std::min(next, looks_.top().first);
}

bool BackendCore::takes_batches(GpuletId gpulet) const {
  return phase_of(gpulet) == GpuletPhase::ready;
}

std::optional<GpuletPhase> BackendCore::phase_of(GpuletId gpulet) const {
  const auto found = gpulets_.find(gpulet);
  return found == gpulets_.end() ? std::nullopt : std::optional(found->second.phase());
}

void BackendCore::on_event(FrontendConnected& /*event*/, Now now) {
  connected_ = true;
  dropping_ = false;
  connected_at_ = now.time;
  last_heard_ = now.time;
  heartbeat_every_.reset();
  next_heartbeat_ = kNever;
  asked_for_.clear();

  Hello hello{options_.node, options_.devices, {}};
  for (std::size_t i = 0; i < hello.devices.size(); ++i) hello.devices[i].fault = device_faults_[i];
  for (const auto& [id, gpulet] : gpulets_) {
    // A retiring one takes nothing any more; telling of it would only have it retired again.
    if (gpulet.phase() != GpuletPhase::retiring) hello.gpulets.push_back(gpulet.report());
  }
  tell(std::move(hello), now);
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.phase() == GpuletPhase::fetching) want_missing_files(gpulet, now);
  }
}

void BackendCore::on_event(FrontendLost& /*event*/, Now now) {
  connected_ = false;
  for (auto& [id, gpulet] : gpulets_) {
    for (auto& batch : gpulet.held) batch.orphaned = true;
  }
  if (shutting_down_) retire_all(now);
}

void BackendCore::on_event(Welcome& event, Now now) {
  last_heard_ = now.time;
  heartbeat_every_ = std::clamp(event.heartbeat_every, kLeastHeartbeat, kRarestHeartbeat);
  next_heartbeat_ = now.time + *heartbeat_every_;
}

void BackendCore::on_event(Heartbeat& /*event*/, Now now) { last_heard_ = now.time; }

void BackendCore::on_event(TimePassed& /*event*/, Now now) {
  look_at_frontend(now);
  if (now.time >= leave_by_) retire_all(now);
  while (!looks_.empty() && looks_.top().first <= now.time) {
    const auto [time, id] = looks_.top();
    looks_.pop();
    auto* gpulet = find(id);
    if (gpulet == nullptr || gpulet->look != time) continue;  // an earlier look took its place
    gpulet->look = kNever;
    look_at(*gpulet, now);
    plan_look(*gpulet);
  }
}

void BackendCore::look_at_frontend(Now now) {
  if (!connected_ || dropping_) return;
  const auto silent = [&](Duration allowed, Time since) { return now.time >= since + allowed; };
  if (!heartbeat_every_) {
    if (silent(options_.welcome_timeout, connected_at_)) {
      dropping_ = true;
      now.effects.push_back(
          DropFrontend{{StatusCode::timeout, "the frontend did not welcome this backend"}});
    }
    return;
  }
  if (silent(kSilentHeartbeats * *heartbeat_every_, last_heard_)) {
    dropping_ = true;
    now.effects.push_back(DropFrontend{{StatusCode::timeout, "the frontend went silent"}});
    return;
  }
  if (now.time >= next_heartbeat_) {
    tell(heartbeat(), now);
    next_heartbeat_ = now.time + *heartbeat_every_;
  }
}

// What it serves goes on, elsewhere, before its gpulets end; the frontend has a while to see to it.
void BackendCore::on_event(ShutDown& /*event*/, Now now) {
  shutting_down_ = true;
  for (auto& [id, gpulet] : gpulets_) {
    if (!connected_ || gpulet.phase() != GpuletPhase::ready) retire(gpulet, now);
  }
  const bool serves = std::any_of(gpulets_.begin(), gpulets_.end(), [](const auto& entry) {
    return entry.second.phase() == GpuletPhase::ready;
  });
  if (!serves) return;
  leave_by_ = now.time + options_.leave_timeout;
  tell(Leaving{}, now);
}

void BackendCore::retire_all(Now now) {
  leave_by_ = kNever;
  for (auto& [id, gpulet] : gpulets_) retire(gpulet, now);
}

Heartbeat BackendCore::heartbeat() const {
  Heartbeat beat;
  for (const auto& [device, power] : power_) {
    if (!power.usage_w && !power.limit_w && !power.energy_j) continue;
    beat.power.push_back(power);
    beat.power.back().device = device;
  }
  return beat;
}

void BackendCore::tell(BackendMessage message, Now now) {
  if (connected_) now.effects.push_back(TellFrontend{std::move(message)});
}

}  // namespace gpulet::serve
