#include "serve/cluster/leadership.h"

#include <fmt/format.h>

#include <utility>

namespace gpulet::serve {
namespace {

constexpr Term kFirstTerm{1};
// Backends that do not answer in that time hold up no requests.
constexpr Duration kTakeOverTimeout = std::chrono::seconds(5);

}  // namespace

Leadership::Leadership(const FrontendOptions& options, Dispatcher& dispatcher,
                       BackendRegistry& backends, Deployment& deployment, Takeover& takeover,
                       Forwarder& forwarder, Journal& journal)
    : options_(options),
      dispatcher_(dispatcher),
      backends_(backends),
      deployment_(deployment),
      takeover_(takeover),
      forwarder_(forwarder),
      journal_(journal) {
  if (leads()) backends_.set_term(kFirstTerm);
}

bool Leadership::taking_over(Time now) const {
  return options_.clustered && leads() && now - won_at_ <= kTakeOverTimeout &&
         takeover_.incomplete();
}

LeadershipStatus Leadership::status() const {
  return {options_.clustered, leads(), backends_.term(), leader_, takeover_.superseded()};
}

void Leadership::on_won(const LeadershipWon& event, Time now, FrontendEffects& effects) {
  if (!options_.clustered || (leads() && event.term <= backends_.term())) return;
  doubtful_ = false;
  leader_.clear();
  if (!leads()) won_at_ = now;
  dispatcher_.set_routes({}, now);  // until the backends tell what runs
  forwarder_.lead(now, effects);
  backends_.set_term(event.term);
  journal_.requests().start_over();
  journal_.request_plan("this frontend leads now");
  journal_.requests().gather_until(now + options_.gather);
  journal_.note(false, fmt::format("leads the cluster in term {}", event.term.value), now, effects);
  takeover_.take_all(effects);
}

// The gpulets finish the batches that they hold: their backends still send the results here.
bool Leadership::on_lost(const LeadershipLost& event, Time now, FrontendEffects& effects) {
  leader_ =
      event.leader.empty() ? std::string() : fmt::format("{} at {}", event.leader, event.address);
  if (!leads()) {
    forwarder_.set_leader(event.leader, now, effects);
    return false;
  }
  doubtful_ = false;
  journal_.note(true,
                leader_.empty() ? "no longer leads the cluster"
                                : "no longer leads the cluster: " + leader_ + " does",
                now, effects);
  journal_.requests().discard();
  backends_.set_commanded_by_none();
  deployment_.start_over();
  dispatcher_.set_routes({}, now);
  forwarder_.set_leader(event.leader, now, effects);
  return true;
}

void Leadership::hand_on(Time now, FrontendEffects& effects) {
  if (forwarder_.routes().all_here()) return;
  const auto name_of = [this](ModelIndex model) -> const std::string& {
    return dispatcher_.queues().models()[model].name;
  };
  const auto elsewhere = [&](ModelIndex model) {
    return !forwarder_.routes().here(name_of(model));
  };
  for (auto& [model, request] : dispatcher_.take_waiting(elsewhere)) {
    if (request.forwarded) {
      effects.emplace_back(ReplyElsewhere{request.client, request.tag});
    } else {
      forwarder_.forward(name_of(model), std::move(request), true, now, effects);
    }
  }
}

void Leadership::on_doubted(const LeadershipDoubted& event, Time now, FrontendEffects& effects) {
  if (!options_.clustered || !leads() || event.doubtful == doubtful_) return;
  doubtful_ = event.doubtful;
  journal_.note(doubtful_,
                doubtful_ ? "another frontend may lead by now: only urgent plans are made"
                          : "leads the cluster without doubt again",
                now, effects);
}

}  // namespace gpulet::serve
