#include "node/frontend_links.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace gpulet::node {
namespace {

constexpr int kSilentHeartbeats = 4;  // heartbeat intervals without a message: the peer is gone
// Bounds a number from the wire: neither a busy loop nor an overflow of a time.
constexpr Duration kShortestHeartbeat = std::chrono::milliseconds(1);
constexpr Duration kLongestHeartbeat = std::chrono::hours(1);

}  // namespace

void FrontendLinks::connect(FrontendId id, Time now) {
  Frontend& frontend = frontends_[id] = {};
  frontend.connected_at = now;
  frontend.last_message = now;
}

void FrontendLinks::disconnect(FrontendId frontend) {
  frontends_.erase(frontend);
  fence_.disconnected(frontend);
}

bool FrontendLinks::heard(FrontendId frontend, Time now) {
  const auto found = frontends_.find(frontend);
  if (found == frontends_.end()) return false;
  found->second.last_message = now;
  return true;
}

Time FrontendLinks::silent_at(const Frontend& frontend) const {
  return frontend.heartbeat_every
             ? frontend.last_message + kSilentHeartbeats * *frontend.heartbeat_every
             : frontend.connected_at + welcome_timeout_;
}

Time FrontendLinks::next_check() const {
  Time next = kNever;
  for (const auto& [id, frontend] : frontends_) {
    if (frontend.disconnecting) continue;
    next = std::min({next, frontend.next_heartbeat, silent_at(frontend)});
  }
  return next;
}

bool FrontendLinks::is_due(FrontendId id, Frontend& frontend, Turn turn) const {
  if (frontend.disconnecting) return false;
  if (turn.time < silent_at(frontend)) return turn.time >= frontend.next_heartbeat;
  frontend.disconnecting = true;
  turn.effects.push_back(DisconnectFrontend{
      id,
      {StatusCode::timeout, frontend.heartbeat_every ? "the frontend sent no heartbeat in time"
                                                     : "the frontend sent no Welcome in time"}});
  return false;
}

bool FrontendLinks::take_leadership(FrontendId from, Term term, Turn turn) {
  if (fence_.take_leadership(from, term)) return true;
  ++commands_refused_;
  send_to(from, Superseded{fence_.term()}, turn);
  return false;
}

bool FrontendLinks::welcome(FrontendId from, Welcome& command, Turn turn) {
  Frontend& frontend = frontends_.at(from);
  if (frontend.heartbeat_every) {
    // A second one could take over another member's gpulets.
    frontend.disconnecting = true;
    turn.effects.push_back(DisconnectFrontend{
        from, {StatusCode::invalid, "the frontend sent a second Welcome on one connection"}});
    return false;
  }
  frontend.level = command.level;
  frontend.member = std::move(command.member);
  frontend.heartbeat_every =
      std::clamp(command.heartbeat_every, kShortestHeartbeat, kLongestHeartbeat);
  frontend.next_heartbeat = turn.time + *frontend.heartbeat_every;
  const auto before = fence_.leader();
  fence_.welcomed(from, command.level);
  return fence_.leader() != before;
}

bool FrontendLinks::admits(FrontendId from, Term term, Turn turn) {
  if (fence_.admits(from, term)) return true;
  ++commands_refused_;
  send_to(from, Superseded{fence_.term()}, turn);
  return false;
}

// Of two connections with a member's name, the older one belongs to a process that was replaced.
std::optional<FrontendId> FrontendLinks::frontend_of(const std::string& member) const {
  std::optional<FrontendId> newest;
  for (const auto& [id, frontend] : frontends_) {
    if (!member.empty() && frontend.member == member) newest = id;
  }
  return newest;
}

void FrontendLinks::send_to(FrontendId frontend, BackendMessage message, Turn turn) {
  const auto found = frontends_.find(frontend);
  if (found == frontends_.end()) return;
  if (std::holds_alternative<Superseded>(message) && found->second.level == 0) return;
  turn.effects.push_back(SendToFrontend{frontend, std::move(message)});
}

void FrontendLinks::send(BackendMessage message, Turn turn) {
  const auto leader = fence_.leader();
  if (!leader) return send_to_all(message, turn);
  send_to(*leader, std::move(message), turn);
}

void FrontendLinks::send_to_all(const BackendMessage& message, Turn turn) {
  for (const auto& [id, frontend] : frontends_) send_to(id, message, turn);
}

void FrontendLinks::send_report(GpuletReport report, Turn turn) {
  const auto owner = frontend_of(report.owner);
  if (owner && fence_.leader() && fence_.leader() != owner) send_to(*owner, report, turn);
  send(std::move(report), turn);
}

void FrontendLinks::excuse_silence(Duration late, Time now) {
  if (late <= Duration::zero()) return;
  for (auto& [id, frontend] : frontends_) {
    frontend.connected_at = std::min(now, frontend.connected_at + late);
    frontend.last_message = std::min(now, frontend.last_message + late);
  }
}

}  // namespace gpulet::node
