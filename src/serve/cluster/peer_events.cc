#include "serve/cluster/peer_events.h"

#include <utility>

namespace gpulet::serve {

void PeerEvents::on(const PeerConnected& event, Time now, FrontendEffects& effects) {
  levels_.insert_or_assign(event.member, event.level);
  forwarder_.on_connected(event.member, event.level, now, effects);
  ownership_.on_connected(event.member);
  report_to_leader(effects);
}

void PeerEvents::on(const PeerDisconnected& event, Time now, FrontendEffects& effects) {
  ownership_.on_disconnected(event.member, now);
  forwarder_.on_disconnected(event.member, now, effects);
}

void PeerEvents::on(PeerReplied event, Time now, FrontendEffects& effects) {
  forwarder_.on_reply(event.member, std::move(event.reply), now, effects);
}

// A node that this frontend is not connected to does not wait for it.
void PeerEvents::on(const PeerWantsRows& event, Time /*now*/, FrontendEffects& effects) {
  for (const auto& [backend, record] : backends_.backends()) {
    if (record.node != event.wanted.node || record.level < kLevelOfKeptPayloads) continue;
    effects.emplace_back(SendToBackend{backend, forwarder_.rows_for(event.member, event.wanted)});
  }
}

void PeerEvents::on(PeerServes event, Time now, FrontendEffects& effects) {
  forwarder_.on_served_models(event.member, std::move(event.served), now, effects);
}

void PeerEvents::on(RoutesReceived event, Time now, FrontendEffects& effects) {
  owned_.on_routes(event.member, std::move(event.routes), now);
  follow_owned(now, effects);
}

void PeerEvents::on(const OwnerReported& event, Time now, FrontendEffects& effects) {
  if (!forwarder_.routes().leads()) return;
  ownership_.on_report(event.member, event.report, now);
  reports_.take_in(event.member, event.report, now, effects);
}

void PeerEvents::follow_owned(Time now, FrontendEffects& effects) {
  if (owned_.take_changed()) forwarder_.routes_changed(now, effects);
}

void PeerEvents::report_to_leader(FrontendEffects& effects) {
  const std::string& leader = forwarder_.routes().leader();
  const auto level = levels_.find(leader);
  if (forwarder_.routes().leads() || !forwarder_.leader_connected() || level == levels_.end() ||
      level->second < kLevelOfOwners)
    return;
  effects.emplace_back(SendToPeer{leader, owned_.take_report(draining_)});
}

}  // namespace gpulet::serve
