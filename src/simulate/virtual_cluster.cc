#include "simulate/virtual_cluster.h"

#include <algorithm>
#include <optional>

namespace gpulet::simulate {

VirtualCluster::VirtualCluster(const VirtualTimings& timings, serve::FrontendOptions frontend,
                               ServedLoad served, Knowledge knowledge, VirtualClients& clients,
                               Mishaps& mishaps)
    : timings_(timings),
      knowledge_(std::move(knowledge)),
      clients_(clients),
      links_(timings_.link, agenda_, *this),
      frontends_(timings_, knowledge_, std::move(served), clients, agenda_, links_),
      nodes_(timings_, knowledge_, agenda_, links_, *this, mishaps) {
  add_frontend(std::move(frontend));
}

FrontendIndex VirtualCluster::add_frontend(serve::FrontendOptions options) {
  return frontends_.add(std::move(options));
}

void VirtualCluster::add_node(const std::string& name,
                              const std::vector<schedule::Device>& devices) {
  const NodeIndex node = nodes_.add(name, devices);
  links_.add_node(frontends_.size());
  for (FrontendIndex i = 0; i < frontends_.size(); ++i) links_.connect(node, i);
}

Time VirtualCluster::next_event() const {
  Time next = std::min(clients_.next_request(), frontends_.next_wake());
  if (const std::optional<Due> command = links_.next_command())
    next = std::min(next, command->time);
  if (const std::optional<Due> message = links_.next_message())
    next = std::min(next, message->time);
  if (const Timer* const timer = agenda_.first()) next = std::min(next, timer->due.time);
  return next;
}

void VirtualCluster::run_until(Time time) {
  while (true) {
    const Time next = next_event();
    if (next >= time) break;
    agenda_.advance(next);
    while (handle_next()) ++events_;
    while (clients_.next_request() <= now()) {
      InferRequest request = clients_.take_request();
      send_request(std::move(request), clients_.age_of_taken());
      ++events_;
    }
    frontends_.settle();
    tell_of_plan();
  }
  agenda_.advance(time);
}

void VirtualCluster::tell_of_plan() {
  if (!frontends_.runs(entry_)) return;
  const serve::FrontendCore& entry = frontends_.core(entry_);
  if (entry.epoch() == epoch_seen_) return;
  epoch_seen_ = entry.epoch();
  clients_.plan_in_force(entry.plan(), now());
}

void VirtualCluster::send_request(InferRequest request, Duration age) {
  const FrontendIndex entry = all_entries_ ? sent_++ % frontends_.size() : entry_;
  if (frontends_.runs(entry)) {
    frontends_.feed(entry,
                    serve::RequestReceived{ClientId{1}, std::move(request), age, false, false});
    return;
  }
  InferReply refused;
  refused.tag = request.tag;
  refused.status = {StatusCode::unavailable, "connection refused"};
  clients_.answered(std::move(refused), now());
}

bool VirtualCluster::handle_next() {
  enum class Source : std::uint8_t { none, command, message, timer };
  Source source = Source::none;
  Due first{now(), UINT64_MAX};
  const auto consider = [&](Source candidate, const Due& due) {
    if (due > first) return;
    source = candidate;
    first = due;
  };
  if (const std::optional<Due> command = links_.next_command()) consider(Source::command, *command);
  if (const std::optional<Due> message = links_.next_message()) consider(Source::message, *message);
  if (const Timer* const timer = agenda_.first()) consider(Source::timer, timer->due);
  switch (source) {
    case Source::none:
      return false;
    case Source::command:
      links_.deliver_command();
      break;
    case Source::message:
      links_.deliver_message();
      break;
    case Source::timer:
      handle(agenda_.take_first());
      break;
  }
  return true;
}

void VirtualCluster::handle(const Timer& timer) {
  switch (timer.kind) {
    case Timer::Kind::batch_done:
      nodes_.processes().batch_done(timer);
      break;
    case Timer::Kind::node_wakes:
      nodes_.wake(timer);
      break;
    case Timer::Kind::call:
      agenda_.run_call(timer);
      break;
  }
}

}  // namespace gpulet::simulate
