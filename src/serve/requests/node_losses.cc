#include "serve/requests/node_losses.h"

#include <string>
#include <utility>

namespace gpulet::serve {

void NodeLosses::update_absence() {
  std::string why = backends_.why_nothing_serves();
  dispatch_.dispatcher().set_absence(why.empty() ? Status()
                                                 : Status(StatusCode::unavailable, std::move(why)));
}

void NodeLosses::on_draining(BackendId backend, Time now, FrontendEffects& effects) {
  const auto found = backends_.backends().find(backend);
  if (found == backends_.backends().end()) return;
  backends_.start_draining(backend);
  journal_.note(false, "node " + found->second.node + " is stopping: its models move", now,
                effects);
  journal_.request_urgent_plan("node " + found->second.node + " is stopping");
}

void NodeLosses::on_disconnected(BackendId backend, const Status& reason, Time now,
                                 FrontendEffects& effects) {
  const auto found = backends_.backends().find(backend);
  if (found == backends_.backends().end()) return;
  const std::string node = found->second.node;
  sessions_.left(backend, node, reason, now);
  deployment_.set_gpulets_changed();
  deployment_.abandon(Abandoned::node_lost);
  DispatchOutput output;
  bool served = false;
  for (const GpuletId id : backends_.remove(backend)) {
    dispatch_.dispatcher().remove(id, now, output);
    served |= deployment_.lose(id);
  }
  owned_.on_disconnected(backend, now, output);
  update_absence();
  dispatch_.write(std::move(output), effects);
  journal_.note(true, "lost node " + node + ": " + reason.message(), now, effects);
  // Its gpulets are replaced even where other plans must wait.
  if (served) {
    journal_.request_urgent_plan("node " + node + " is lost");
  } else {
    journal_.request_plan("node " + node + " is lost");
  }
}

void NodeLosses::on_device_report(BackendId backend, const DeviceReport& message, Time now,
                                  FrontendEffects& effects) {
  const auto device = backends_.report_device(backend, message);
  if (!device) return;
  update_absence();
  const bool back = message.fault.ok();
  const std::string name = "device " + device_name(*device);
  journal_.note(!back, name + (back ? " is back" : " is lost: " + message.fault.message()), now,
                effects);
  journal_.request_urgent_plan(name + (back ? " is back" : " is lost"));
  if (back) return;
  deployment_.lose_device(*device);
}

void NodeLosses::tick(Time now, Duration late, FrontendEffects& effects) {
  backends_.excuse_silence(late, now);
  for (const BackendId silent : backends_.silent_since(now - 4 * options_.heartbeat)) {
    const Status reason(StatusCode::timeout, "nothing was heard from it for four heartbeats");
    effects.emplace_back(DisconnectBackend{silent, reason});
    on_disconnected(silent, reason, now, effects);
  }
  for (const auto& [id, backend] : backends_.backends())
    effects.emplace_back(SendToBackend{id, Heartbeat{}});
}

}  // namespace gpulet::serve
