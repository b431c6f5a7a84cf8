#include "simulate/virtual_frontends.h"

#include <algorithm>

#include "gpulet/serve/plans/planning.h"

namespace gpulet::simulate {

using namespace serve;  // NOLINT(google-build-using-namespace): its vocabulary throughout

FrontendIndex VirtualFrontends::add(FrontendOptions options) {
  const FrontendIndex added = frontends_.size();
  if (options.clustered) options.member = member_of(added);
  frontends_.push_back({std::make_unique<FrontendCore>(
      std::move(options),
      Catalogue{served_.models, knowledge_.profiles, knowledge_.believed, served_.applications},
      agenda_.now())});
  for (FrontendIndex other = 0; other < added; ++other) connect_peers(other, added);
  return added;
}

void VirtualFrontends::kill(FrontendIndex frontend) {
  disconnect_peers(frontend);
  frontends_[frontend] = {};
}

void VirtualFrontends::pause(FrontendIndex frontend) {
  if (frontends_[frontend].paused) return;
  frontends_[frontend].paused = true;
  agenda_.call_at(agenda_.now() + kPeerSilence,
                  [this, frontend, pause = ++frontends_[frontend].pauses] {
                    const Frontend& silent = frontends_[frontend];
                    if (silent.paused && silent.pauses == pause) disconnect_peers(frontend);
                  });
}

void VirtualFrontends::resume(FrontendIndex frontend) {
  if (!std::exchange(frontends_[frontend].paused, false)) return;
  while (!frontends_[frontend].held.empty()) {
    FrontendEvent event = std::move(frontends_[frontend].held.front());
    frontends_[frontend].held.pop_front();
    feed(frontend, std::move(event));
  }
  for (FrontendIndex other = 0; other < frontends_.size(); ++other) {
    if (other != frontend) connect_peers(other, frontend);
  }
}

void VirtualFrontends::feed(FrontendIndex index, FrontendEvent event) {
  Frontend& frontend = frontends_[index];
  if (frontend.core == nullptr) return;
  if (frontend.paused) {
    frontend.held.push_back(std::move(event));
    return;
  }
  frontend.settle_due = true;
  acting_ = index;
  effects_.clear();
  if (observer_) {
    const FrontendEvent seen = event;
    frontend.core->on(std::move(event), agenda_.now(), effects_);
    observer_(seen, agenda_.now(), effects_);
  } else {
    frontend.core->on(std::move(event), agenda_.now(), effects_);
  }
  for (FrontendEffect& effect : effects_) std::visit([this](auto& one) { carry_out(one); }, effect);
}

Time VirtualFrontends::next_wake() const {
  Time next = kNever;
  for (const Frontend& frontend : frontends_) {
    if (frontend.core != nullptr && !frontend.paused)
      next = std::min(next, frontend.core->next_wake());
  }
  return next;
}

void VirtualFrontends::settle() {
  for (FrontendIndex i = 0; i < frontends_.size(); ++i) {
    Frontend& frontend = frontends_[i];
    if (frontend.core == nullptr || frontend.paused) continue;
    if (!frontend.settle_due && frontend.core->next_wake() > agenda_.now()) continue;
    feed(i, Settle{});
    frontend.settle_due = false;
  }
}

// ---- connections between frontends

void VirtualFrontends::connect_peers(FrontendIndex one, FrontendIndex other) {
  if (frontends_[one].core == nullptr || frontends_[other].core == nullptr) return;
  connect_peer(one, other);
  connect_peer(other, one);
}

void VirtualFrontends::connect_peer(FrontendIndex from, FrontendIndex to) {
  const bool connected =
      std::any_of(peer_links_.begin(), peer_links_.end(),
                  [&](const PeerLink& link) { return link.from == from && link.to == to; });
  if (connected) return;
  peer_links_.push_back({from, to, ClientId{next_peer_client_++}});
  feed(from, PeerConnected{member_of(to), kProtocolLevel});
  feed(from, PeerServes{member_of(to), frontends_[to].told});
}

void VirtualFrontends::disconnect_peers(FrontendIndex frontend) {
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
      agenda_.call_at(arrival(), [this, link] {
        feed(link.from, PeerDisconnected{member_of(link.to)});
        feed(link.to, ClientDisconnected{link.client});
      });
    }
  }
}

const VirtualFrontends::PeerLink* VirtualFrontends::peer_link(ClientId client) const {
  const auto found = std::find_if(peer_links_.begin(), peer_links_.end(),
                                  [&](const PeerLink& link) { return link.client == client; });
  return found == peer_links_.end() ? nullptr : &*found;
}

void VirtualFrontends::carry_out(ReplyToClient& effect) {
  if (effect.client.value < kFirstPeerClient)
    return clients_.answered(std::move(effect.reply), agenda_.now());
  reply_to_peer(effect.client, {std::move(effect.reply), false});
}

void VirtualFrontends::carry_out(const ReplyElsewhere& effect) {
  ForwardReply reply;
  reply.reply.tag = effect.tag;
  reply.elsewhere = !effect.payload_needed;
  reply.payload_needed = effect.payload_needed;
  reply_to_peer(effect.client, std::move(reply));
}

void VirtualFrontends::carry_out(AskForRows& effect) {
  agenda_.call_at(arrival(), [this, client = effect.client, wanted = std::move(effect.wanted)] {
    const PeerLink* const link = peer_link(client);
    if (link != nullptr) feed(link->from, PeerWantsRows{member_of(link->to), wanted});
  });
}

void VirtualFrontends::reply_to_peer(ClientId client, ForwardReply reply) {
  agenda_.call_at(arrival(), [this, client, reply = std::move(reply)] {
    const PeerLink* const link = peer_link(client);
    if (link != nullptr) feed(link->from, PeerReplied{member_of(link->to), reply});
  });
}

void VirtualFrontends::carry_out(SendToPeer& effect) {
  const auto found =
      std::find_if(peer_links_.begin(), peer_links_.end(), [&](const PeerLink& link) {
        return link.from == acting_ && member_of(link.to) == effect.member;
      });
  if (found == peer_links_.end()) return;
  agenda_.call_at(arrival(), [this, client = found->client, message = std::move(effect.message)] {
    if (const PeerLink* const link = peer_link(client)) deliver(*link, message);
  });
}

void VirtualFrontends::deliver(const PeerLink& link, const PeerRequest& message) {
  if (const auto* const forward = std::get_if<Forward>(&message)) {
    feed(link.to, RequestReceived{link.client, forward->request, forward->age, true,
                                  forward->delayed, member_of(link.from), forward->kept_bytes});
  } else if (const auto* const cancel = std::get_if<CancelForward>(&message)) {
    feed(link.to, RequestCancelled{link.client, cancel->tag, cancel->model});
  } else if (const auto* const routes = std::get_if<SetRoutes>(&message)) {
    feed(link.to, RoutesReceived{member_of(link.from), *routes});
  } else if (const auto* const report = std::get_if<OwnerReport>(&message)) {
    feed(link.to, OwnerReported{member_of(link.from), *report});
  }
}

void VirtualFrontends::carry_out(TellPeers& effect) {
  frontends_[acting_].told = std::move(effect.served);
  for (const PeerLink& link : peer_links_) {
    if (link.to != acting_) continue;
    agenda_.call_at(arrival(), [this, from = link.from, to = link.to] {
      feed(from, PeerServes{member_of(to), frontends_[to].told});
    });
  }
}

void VirtualFrontends::carry_out(const MakePlan& effect) {
  PlanMade made = make_plan(effect, *knowledge_.policy);
  told_.plans.push_back(made.number);
  told_.faults = made.result.faults;
  agenda_.call_at(agenda_.now() + timings_.planning,
                  [this, frontend = acting_, made = std::move(made)] { feed(frontend, made); });
}

void VirtualFrontends::carry_out(const StepToRun& effect) {
  agenda_.call_at(agenda_.now(),
                  [this, frontend = acting_,
                   done = StepCompleted{effect.id, run_step(effect.step, effect.inputs)}] {
                    feed(frontend, done);
                  });
}

}  // namespace gpulet::simulate
