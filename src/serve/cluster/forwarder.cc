#include "serve/cluster/forwarder.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/deploy/response_writer.h"

namespace gpulet::serve {
namespace {

// After a request's own limit, for the answer to arrive.
constexpr Duration kAnswerSlack = std::chrono::seconds(1);

// As the client sent it: the receiver applies the objective and the rules of its own.
Duration timeout_of(const Request& request) {
  if (request.own_deadline || request.client == kEngine)
    return std::max(request.deadline - request.trace.arrived, Duration(1));
  return request.queue_timeout;
}

}  // namespace

// ---- routes

Forwarder::Forwarder(const FrontendOptions& options, ModelRegistry& models,
                     ResponseWriter& responses, RouteTable& routes)
    : options_(options), models_(models), responses_(responses), routes_(routes) {
  follow_served();
}

void Forwarder::set_leader(const std::string& member, Time now, FrontendEffects& effects) {
  if (!routes_.leads() && member == routes_.leader()) return;
  routes_.follow(member);
  follow_served();
  routes_changed(now, effects);
}

void Forwarder::lead(Time now, FrontendEffects& effects) {
  routes_.lead();
  follow_served();
  routes_changed(now, effects);
}

void Forwarder::routes_changed(Time now, FrontendEffects& effects) {
  std::set<std::pair<Time, Tag>> due;
  for (const auto& [until, tag] : waiting_) {
    held_.at(tag).waits_until = now;
    due.emplace(now, tag);
  }
  waiting_.swap(due);
  send_waiting(now, effects);
}

const ServedModels* Forwarder::served() const {
  if (routes_.leads()) return nullptr;
  const auto peer = peers_.find(routes_.leader());
  return peer == peers_.end() || !peer->second.served ? nullptr : &*peer->second.served;
}

void Forwarder::follow_served() {
  const ServedModels* const served = this->served();
  if (routes_.leads()) return models_.follow({}, false);
  models_.follow(served == nullptr ? std::vector<ServedModelState>() : served->models, true);
  // Owners stay owners while no leader says otherwise.
  if (served == nullptr || served->models.empty()) return;
  RouteTable::Owners owners;
  for (const ServedModelState& state : served->models) {
    if (state.owner.empty()) continue;
    owners.emplace(state.name,
                   state.owners.empty() ? std::vector{OwnerShare{state.owner, 1}} : state.owners);
  }
  routes_.set_owners(std::move(owners));
}

void Forwarder::on_connected(const std::string& member, std::uint32_t level, Time now,
                             FrontendEffects& effects) {
  peers_.insert_or_assign(member, Peer{level});
  routes_changed(now, effects);
}

void Forwarder::on_disconnected(const std::string& member, Time now, FrontendEffects& effects) {
  if (peers_.erase(member) == 0) return;
  if (member == routes_.leader()) follow_served();
  std::vector<Tag> lost;
  for (const auto& [tag, held] : held_) {
    if (held.sent_to == member) lost.push_back(tag);
  }
  std::sort(lost.begin(), lost.end());
  for (const Tag tag : lost) {
    Held& held = held_.at(tag);
    if (++held.lost_peers < kMostLostPeers) {
      held.delayed = true;
      wait(tag, held, now);
      continue;
    }
    InferReply reply;
    reply.status = {StatusCode::unavailable,
                    fmt::format("{} connections to other frontends ended while the request was "
                                "there, the last one to {}",
                                kMostLostPeers, member)};
    ++counts_.failed;
    answer(tag, std::move(reply), effects);
  }
  send_waiting(now, effects);
}

void Forwarder::on_served_models(const std::string& member, ServedModels served, Time now,
                                 FrontendEffects& effects) {
  const auto peer = peers_.find(member);
  if (peer == peers_.end()) return;
  peer->second.served = std::move(served);
  if (routes_.leads() || member != routes_.leader()) return;
  follow_served();
  routes_changed(now, effects);
}

Forwarder::Target Forwarder::target_for(const std::string& model) const {
  const bool here = routes_.here(model);
  const bool divided = routes_.divided(model);
  if (here && !divided) return {true};
  const std::string& next = routes_.next_member_for(model);
  if (next.empty() && here) return {true};
  if (peers_.contains(next)) return {false, &next};
  if (!divided) return {};
  // The owner whose turn it is cannot be reached: another one takes it.
  for (const OwnerShare& owner : routes_.owners().at(model)) {
    if (peers_.contains(owner.member)) return {false, &owner.member};
  }
  return {here};
}

// ---- requests

Time Forwarder::answer_by(const Held& held) const {
  const Request& request = held.request;
  if (request.own_deadline || request.client == kEngine) return request.deadline;
  // The receiver knows whether the model sleeps, or has instances only.
  const Duration patience = held.sent_to.empty()
                                ? options_.wake_within
                                : std::max(options_.wake_within, options_.control.patience);
  return std::max(request.deadline, request.trace.arrived + patience) + kAnswerSlack;
}

void Forwarder::set_deadline(Tag tag, Held& held) {
  deadlines_.remove(held.answer_by, tag);
  held.answer_by = answer_by(held);
  deadlines_.add(held.answer_by, tag);
}

void Forwarder::forward(std::string model, Request&& request, bool delayed, Time now,
                        FrontendEffects& effects) {
  const Tag tag = next_tag_++;
  Held& held = held_[tag];
  held.model = std::move(model);
  held.request = std::move(request);
  held.delayed = delayed;
  by_client_.emplace(held.request.client, tag);
  send_or_wait(tag, held, now, effects);
}

void Forwarder::send_or_wait(Tag tag, Held& held, Time now, FrontendEffects& effects) {
  const Target target = target_for(held.model);
  if (target.here) {
    Held taken = take(tag);
    local_.push_back({std::move(taken.model), std::move(taken.request), taken.delayed});
  } else if (target.member != nullptr) {
    send(tag, held, *target.member, now, effects);
  } else {
    held.delayed = true;
    wait(tag, held, kNever);
  }
}

void Forwarder::wait(Tag tag, Held& held, Time until) {
  held.sent_to.clear();
  held.waits_until = until;
  waiting_.emplace(until, tag);
  set_deadline(tag, held);
}

void Forwarder::send_waiting(Time now, FrontendEffects& effects) {
  std::vector<Tag> due;
  for (auto one = waiting_.begin(); one != waiting_.end() && one->first <= now; ++one)
    due.push_back(one->second);
  for (const Tag tag : due) {
    Held& held = held_.at(tag);
    waiting_.erase({held.waits_until, tag});
    send_or_wait(tag, held, now, effects);
  }
}

void Forwarder::note_needed(Peer& peer, Time now) {
  constexpr Duration kWithin = std::chrono::seconds(1);
  if (now - peer.needed_since > kWithin) {
    peer.needed_since = now;
    peer.needed = 0;
  }
  if (++peer.needed >= kMostNeededPayloads) peer.payloads_until = now + kPayloadsToMemberFor;
}

bool Forwarder::keeps(const Held& held, const Peer& peer, Time now) const {
  return held.request.input.size() >= options_.least_kept_payload && !held.payload_needed &&
         peer.level >= kLevelOfKeptPayloads && now >= peer.payloads_until;
}

void Forwarder::send(Tag tag, Held& held, const std::string& member, Time now,
                     FrontendEffects& effects) {
  const NamedModel* const known = models_.find(held.model);
  if (known == nullptr) {
    InferReply reply;
    reply.status = {StatusCode::unavailable, "model " + held.model + " was removed meanwhile"};
    ++counts_.failed;
    return answer(tag, std::move(reply), effects);
  }
  Forward forward;
  InferRequest& request = forward.request;
  request.tag = tag;
  request.model = held.model;
  request.timeout = timeout_of(held.request);
  request.inputs = models_.served(*known).inputs;
  request.synthetic = held.request.synthetic;
  held.kept = keeps(held, peers_.at(member), now);
  if (held.kept) {
    forward.kept_bytes = held.request.input.size();
  } else {
    request.payload = held.request.input;
  }
  request.priority = held.request.priority;
  forward.age = now - held.request.trace.arrived;
  forward.delayed = held.delayed;
  held.outputs = models_.served(*known).outputs;
  held.sent_to = member;
  set_deadline(tag, held);
  ++counts_.sent;
  effects.emplace_back(SendToPeer{member, std::move(forward)});
}

void Forwarder::on_reply(const std::string& member, ForwardReply reply, Time now,
                         FrontendEffects& effects) {
  const Tag tag = reply.reply.tag;
  const auto found = held_.find(tag);
  if (found == held_.end() || found->second.sent_to != member) return;  // it was answered
  // One that has its payload with it is answered as it says.
  if (reply.payload_needed && found->second.kept) {
    note_needed(peers_.at(member), now);
    found->second.payload_needed = true;
    wait(tag, found->second, now);
    return send_waiting(now, effects);
  }
  if (!reply.elsewhere) {
    InferReply& answered = reply.reply;
    if (Status wrong = check_forwarded(answered, found->second.outputs); !wrong.ok()) {
      ++counts_.failed;
      answered = {};
      answered.status =
          wrong.within(fmt::format("frontend {}, model {}", member, found->second.model));
    } else {
      ++counts_.answered;
    }
    // A hint would make clients send all requests of a divided model to one of its owners.
    answered.served_by = routes_.divided(found->second.model) ? std::string() : member;
    return answer(tag, std::move(answered), effects);
  }
  ++counts_.elsewhere;
  Held& held = found->second;
  held.delayed = true;
  const bool unchanged = routes_.serves(member, held.model);
  wait(tag, held, unchanged ? now + kRerouteAfter : now);
  send_waiting(now, effects);
}

Rows Forwarder::rows_for(const std::string& member, const RowsWanted& wanted) const {
  Rows rows{member, wanted.batch, {}, {}};
  for (std::size_t i = 0; i < wanted.tags.size(); ++i) {
    const auto found = held_.find(wanted.tags[i]);
    if (found == held_.end() || found->second.sent_to != member || !found->second.kept) continue;
    rows.present.push_back(static_cast<std::uint32_t>(i));
    rows.inputs.push_back(found->second.request.input);
  }
  return rows;
}

std::vector<Forwarder::Tag> Forwarder::tags_of(ClientId client) const {
  std::vector<Tag> tags;
  for (auto one = by_client_.lower_bound({client, 0});
       one != by_client_.end() && one->first == client; ++one)
    tags.push_back(one->second);
  return tags;
}

void Forwarder::client_gone(ClientId client, FrontendEffects& effects) {
  for (const Tag tag : tags_of(client)) cancel(tag, effects);
  std::erase_if(local_, [client](const LocalRequest& one) { return one.request.client == client; });
}

void Forwarder::withdraw(ClientId client, std::uint64_t tag, FrontendEffects& effects) {
  for (const Tag number : tags_of(client)) {
    if (held_.at(number).request.tag == tag) return cancel(number, effects);
  }
}

void Forwarder::cancel(Tag tag, FrontendEffects& effects) {
  const Held held = take(tag);
  if (peers_.contains(held.sent_to))
    effects.emplace_back(SendToPeer{held.sent_to, CancelForward{tag, held.model}});
}

Forwarder::Held Forwarder::take(Tag tag) {
  Held held = std::move(held_.extract(tag).mapped());
  if (held.sent_to.empty()) waiting_.erase({held.waits_until, tag});
  by_client_.erase({held.request.client, tag});
  deadlines_.remove(held.answer_by, tag);
  return held;
}

void Forwarder::answer(Tag tag, InferReply reply, FrontendEffects& effects) {
  Held held = take(tag);
  responses_.write_forwarded(std::move(held.request), std::move(reply), effects);
}

void Forwarder::settle(Time now, FrontendEffects& effects) {
  send_waiting(now, effects);
  for (const Tag tag : deadlines_.take_passed(now)) {
    const Held& held = held_.at(tag);
    InferReply reply;
    if (held.request.own_deadline) {
      reply.status = {StatusCode::too_late, "no answer arrived within the request's timeout"};
    } else if (held.sent_to.empty()) {
      const std::string& member = routes_.member_for(held.model);
      reply.status = {StatusCode::unavailable,
                      member.empty() ? "no frontend of this cluster leads now; send again"
                                     : "frontend " + member + ", which serves model " + held.model +
                                           ", is not connected"};
    } else {
      reply.status = {StatusCode::too_late, "no answer from frontend " + held.sent_to};
    }
    ++counts_.failed;
    if (peers_.contains(held.sent_to))
      effects.emplace_back(SendToPeer{held.sent_to, CancelForward{tag, held.model}});
    answer(tag, std::move(reply), effects);
  }
}

Time Forwarder::next_wake() const {
  const Time turn = waiting_.empty() ? kNever : waiting_.begin()->first;
  return std::min(turn, deadlines_.next());
}

std::vector<LocalRequest> Forwarder::take_local() { return std::exchange(local_, {}); }

ForwardingStatus Forwarder::status() const {
  ForwardingStatus status = counts_;
  status.route = routes_.leader();
  status.connected = leader_connected();
  status.waiting = waiting_.size();
  status.in_flight = held_.size() - waiting_.size();
  return status;
}

}  // namespace gpulet::serve
