#include "serve/forwarder.h"

#include <fmt/format.h>

#include <algorithm>

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

// ---- the route

Forwarder::Forwarder(const FrontendOptions& options, const Dependencies& dependencies)
    : options_(options), core_(dependencies), here_(!options.clustered) {
  follow_served();
}

void Forwarder::set_route(const std::string& member, Time now, FrontendEffects& effects) {
  if (!here_ && member == route_) return;
  here_ = false;
  route_ = member;
  follow_served();
  // What waited for another route need not wait longer.
  std::set<std::pair<Time, Tag>> due;
  for (const auto& [until, tag] : waiting_) {
    held_.at(tag).waits_until = now;
    due.emplace(now, tag);
  }
  waiting_.swap(due);
  send_waiting(now, effects);
}

void Forwarder::serve_here() {
  here_ = true;
  route_.clear();
  follow_served();
  std::vector<Tag> waiting;
  for (const auto& [until, tag] : waiting_) waiting.push_back(tag);
  for (const Tag tag : waiting) {
    Held held = take(tag);
    local_.push_back({std::move(held.model), std::move(held.request)});
  }
}

const ServedModels* Forwarder::served() const {
  const auto peer = peers_.find(route_);
  if (here_ || peer == peers_.end() || !peer->second) return nullptr;
  return &*peer->second;
}

void Forwarder::follow_served() {
  const ServedModels* const served = this->served();
  if (here_) return core_.models.follow({}, false);
  core_.models.follow(served == nullptr ? std::vector<ServedModelState>() : served->models, true);
}

void Forwarder::on_connected(const std::string& member, Time now, FrontendEffects& effects) {
  peers_.insert_or_assign(member, std::nullopt);
  if (!here_ && member == route_) send_waiting(now, effects);
}

void Forwarder::on_disconnected(const std::string& member, Time now, FrontendEffects& effects) {
  if (peers_.erase(member) == 0) return;
  if (member == route_) follow_served();
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
  if (here_) return serve_here();
  send_waiting(now, effects);
}

void Forwarder::on_served_models(const std::string& member, ServedModels served) {
  const auto peer = peers_.find(member);
  if (peer == peers_.end()) return;
  peer->second = std::move(served);
  if (member == route_) follow_served();
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
  if (connected()) return send(tag, held, now, effects);
  held.delayed = true;
  wait(tag, held, now);
}

void Forwarder::wait(Tag tag, Held& held, Time until) {
  held.sent_to.clear();
  held.waits_until = until;
  waiting_.emplace(until, tag);
  set_deadline(tag, held);
}

void Forwarder::send_waiting(Time now, FrontendEffects& effects) {
  if (!connected()) return;
  std::vector<Tag> due;
  for (auto one = waiting_.begin(); one != waiting_.end() && one->first <= now; ++one)
    due.push_back(one->second);
  for (const Tag tag : due) {
    Held& held = held_.at(tag);
    waiting_.erase({held.waits_until, tag});
    send(tag, held, now, effects);
  }
}

void Forwarder::send(Tag tag, Held& held, Time now, FrontendEffects& effects) {
  const NamedModel* const known = core_.models.find(held.model);
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
  request.inputs = core_.models.served(*known).inputs;
  request.payload = held.request.input;
  request.priority = held.request.priority;
  forward.age = now - held.request.trace.arrived;
  forward.delayed = held.delayed;
  held.sent_to = route_;
  set_deadline(tag, held);
  ++counts_.sent;
  effects.emplace_back(SendToPeer{route_, std::move(forward)});
}

void Forwarder::on_reply(const std::string& member, ForwardReply reply, Time now,
                         FrontendEffects& effects) {
  const Tag tag = reply.reply.tag;
  const auto found = held_.find(tag);
  if (found == held_.end() || found->second.sent_to != member) return;  // it was answered
  if (!reply.elsewhere) {
    ++counts_.answered;
    return answer(tag, std::move(reply.reply), effects);
  }
  ++counts_.elsewhere;
  Held& held = found->second;
  held.delayed = true;
  wait(tag, held, !here_ && member == route_ ? now + kRerouteAfter : now);
  if (here_) return serve_here();
  send_waiting(now, effects);
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
  core_.responses.write_forwarded(std::move(held.request), std::move(reply), effects);
}

void Forwarder::settle(Time now, FrontendEffects& effects) {
  send_waiting(now, effects);
  for (const Tag tag : deadlines_.take_passed(now)) {
    const Held& held = held_.at(tag);
    InferReply reply;
    if (held.request.own_deadline) {
      reply.status = {StatusCode::too_late, "no answer arrived within the request's timeout"};
    } else if (held.sent_to.empty()) {
      reply.status = {StatusCode::unavailable,
                      route_.empty() ? "no frontend of this cluster leads now; send again"
                                     : "frontend " + route_ + ", which leads, is not connected"};
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
  const Time turn = connected() && !waiting_.empty() ? waiting_.begin()->first : kNever;
  return std::min(turn, deadlines_.next());
}

std::vector<LocalRequest> Forwarder::take_local() { return std::exchange(local_, {}); }

ForwardingStatus Forwarder::status() const {
  ForwardingStatus status = counts_;
  status.route = here_ ? std::string() : route_;
  status.connected = connected();
  status.waiting = waiting_.size();
  status.in_flight = held_.size() - waiting_.size();
  return status;
}

}  // namespace gpulet::serve
