#include "serve/requests/backend_sessions.h"

#include <fmt/format.h>

namespace gpulet::serve {

std::optional<PeerBreach> BackendSessions::on_hello(BackendId backend, const Hello& hello, Time now,
                                                    FrontendEffects& effects) {
  if (auto breach = check_hello(hello, backends_, takeover_.run_ids())) return breach;
  if (options_.clustered && hello.level == 0) {
    const Status why(StatusCode::unavailable,
                     "this frontend is one of several, and the backend obeys one only: upgrade "
                     "gpulet-backend on node " +
                         hello.node);
    effects.emplace_back(DisconnectBackend{backend, why});
    journal_.note(true, "refused a backend: " + why.message(), now, effects);
    return std::nullopt;
  }
  backends_.join(backend, hello, now);
  effects.emplace_back(
      SendToBackend{backend, Welcome{options_.heartbeat, kProtocolLevel, options_.member}});
  journal_.note(
      false,
      fmt::format("node {} joined with {} and {}", hello.node,
                  counted(hello.devices.size(), "device"), counted(hello.gpulets.size(), "gpulet")),
      now, effects);
  probes_.begin_anew(backend, hello.gpulets);
  for (const DeviceOffer& offer : hello.devices) {
    if (probes_.may_know(offer.device.type)) continue;
    journal_.note(true,
                  fmt::format("device {} is left out: no profile named {}; measure one with "
                              "gpulet profile run",
                              device_name(offer.device.key), offer.device.type),
                  now, effects);
  }
  exclusions_.joined(hello.node, hello.gpulets.empty(), now);
  owned_.on_joined(backend, hello.gpulets, now);
  if (hello.level > 0) {
    takeover_.on_joined(backend, hello.term, effects);
  } else {
    takeover_.take_over(backend, hello.gpulets, now, effects);
  }
  return std::nullopt;
}

std::optional<PeerBreach> BackendSessions::on_state(BackendId backend, const BackendState& state,
                                                    Time now, FrontendEffects& effects) {
  if (auto breach = check_state(backend, state, backends_, takeover_.run_ids())) return breach;
  probes_.begin_anew(backend, state.gpulets);
  takeover_.on_state(backend, state, now, effects);
  return std::nullopt;
}

void BackendSessions::on_superseded(BackendId backend, const Superseded& message, Time now,
                                    FrontendEffects& effects) {
  takeover_.on_superseded(backend, message.term, now, effects);
}

bool BackendSessions::admits(BackendId backend, GpuletReport& report, Time now,
                             FrontendEffects& effects) {
  owned_.on_report(backend, report, now);
  const GpuletRecord* const known = backends_.find(report.id);
  if (known == nullptr || known->backend != backend) {
    backends_.report_gpulet(backend, report);  // the end of a disowned one
    return false;
  }
  return !probes_.hold(report, now, effects);
}

void BackendSessions::left(BackendId backend, const std::string& node, const Status& reason,
                           Time now) {
  probes_.forget(backend);
  exclusions_.left(node, reason, now);
}

}  // namespace gpulet::serve
