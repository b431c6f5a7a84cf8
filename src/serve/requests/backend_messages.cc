#include "serve/requests/backend_messages.h"

#include <utility>
#include <variant>

namespace gpulet::serve {

void BackendMessageHandler::on_message(BackendMessageReceived event, Time now,
                                       FrontendEffects& effects) {
  if (const auto breach = to_.rules.check(event, now))
    return on_violation(event.backend, *breach, now, effects);
  std::visit([&](auto& message) { on(event.backend, std::move(message), now, effects); },
             event.message);
}

void BackendMessageHandler::on_violation(BackendId backend, const PeerBreach& breach, Time now,
                                         FrontendEffects& effects) {
  if (to_.rules.end_connection(backend, breach, now, effects))
    on_disconnected(backend, breach.why, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const Hello& message, Time now,
                               FrontendEffects& effects) {
  if (const auto breach = to_.sessions.on_hello(backend, message, now, effects))
    return on_violation(backend, *breach, now, effects);
  to_.nodes.update_absence();
}

void BackendMessageHandler::on(BackendId backend, const BackendState& message, Time now,
                               FrontendEffects& effects) {
  if (const auto breach = to_.sessions.on_state(backend, message, now, effects))
    on_violation(backend, *breach, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const Superseded& message, Time now,
                               FrontendEffects& effects) {
  to_.sessions.on_superseded(backend, message, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const Heartbeat& message, Time /*now*/,
                               FrontendEffects& /*effects*/) {
  to_.nodes.on_heartbeat(backend, message);
}

void BackendMessageHandler::on(BackendId backend, Draining /*message*/, Time now,
                               FrontendEffects& effects) {
  to_.nodes.on_draining(backend, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const DeviceReport& message, Time now,
                               FrontendEffects& effects) {
  to_.nodes.on_device_report(backend, message, now, effects);
}

void BackendMessageHandler::on(BackendId backend, GpuletReport message, Time now,
                               FrontendEffects& effects) {
  if (to_.sessions.admits(backend, message, now, effects))
    to_.gpulets.take_in(backend, message, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const BatchResult& message, Time now,
                               FrontendEffects& effects) {
  if (to_.probes.sent(message.id)) {
    if (const auto report = to_.probes.end(backend, message, now, effects))
      to_.gpulets.take_in(backend, *report, now, effects);
    return;
  }
  const bool leads = routes_.leads();
  for (const ProcessLost& one : to_.results.take_in(message, leads, now, effects)) {
    if (leads) to_.gpulets.process_lost(one.gpulet, now);
  }
}

void BackendMessageHandler::on(BackendId backend, ModelPieceRequest message, Time now,
                               FrontendEffects& effects) {
  if (const auto breach = to_.gpulets.on_file_request(backend, std::move(message), effects))
    on_violation(backend, *breach, now, effects);
}

void BackendMessageHandler::retire_unclaimed(Time now, FrontendEffects& effects) {
  if (routes_.leads()) to_.gpulets.retire_unclaimed(now, effects);
}

void BackendMessageHandler::give_up_overdue(Duration late, Time now, FrontendEffects& effects) {
  if (routes_.leads()) to_.gpulets.give_up_overdue(late, now, effects);
}

}  // namespace gpulet::serve
